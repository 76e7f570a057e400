"""A closer look at a finished trial, by its weights: evaluation, gradients, attention, examples."""
