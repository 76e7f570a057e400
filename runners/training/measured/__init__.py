"""What a training keeps of what it measures, beside the means of its epochs."""
