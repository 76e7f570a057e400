"""How a model turns what it embedded into scores of images by texts: scorers of sets; the product needs no module."""
