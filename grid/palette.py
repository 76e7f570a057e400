"""The style of lines and marks that all pictures share: colours for the colour-blind, each with dashes and a mark."""

from typing import Any

INK, FAINT = "#222222", "#888888"
"""Text and axes."""
BLACK, BLUE, GREEN, ORANGE, VERMILION, SKY, PURPLE = COLOURS = (
    "#000000", "#0072B2", "#009E73", "#E69F00", "#D55E00", "#56B4E9", "#CC79A7",
)  # fmt: skip
"""Okabe and Ito's, without yellow, which white paper swallows."""
DASHES: tuple[Any, ...] = ("-", (0, (5, 2)), (0, (5, 1.5, 1, 1.5)), (0, (1, 1.2)), (0, (8, 1.5, 1, 1.5, 1, 1.5)))
"""As Matplotlib takes them."""
MARKS = ("o", "s", "^", "D", "v", "P", "X")
