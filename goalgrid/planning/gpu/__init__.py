"""Estimate memory and hours of trials on a GPU you do not have. `plan` works without this folder."""
