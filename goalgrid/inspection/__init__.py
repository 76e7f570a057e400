"""Inspect a finished trial through its weights: evaluation, gradients, attention, examples."""
