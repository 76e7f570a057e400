"""What turns images and captions into vectors: encoders, poolings, and the pretrained networks in them."""
