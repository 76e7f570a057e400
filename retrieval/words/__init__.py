"""Captions as token indices: words of a vocabulary, or subwords of a pretrained tokenizer."""
