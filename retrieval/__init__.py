"""The task: pairs of images and captions, encoders into one space, and retrieval in both directions."""
