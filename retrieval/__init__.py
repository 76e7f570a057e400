"""Image-text retrieval: image-caption pairs, encoders into a joint space, and evaluation in both directions."""
