"""Figures of a single trial, beside the kinds of figures of a whole grid."""
