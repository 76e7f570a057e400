"""What a training knows about each of its pairs beside the pair itself."""
