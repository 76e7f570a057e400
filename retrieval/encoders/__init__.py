"""Encoders of images and captions, poolings, and the loading of pretrained networks."""
