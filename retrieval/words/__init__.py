"""Captions as indices: of words of our own vocabulary, or of the pieces of a pretrained tokenizer."""
