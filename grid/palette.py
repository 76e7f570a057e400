"""The shared style of figures: a colour-blind-safe palette, with a dash pattern and a marker for each colour."""

from typing import Any

INK, FAINT = "#222222", "#888888"
"""Text and axes."""
BLACK, BLUE, GREEN, ORANGE, VERMILION, SKY, PURPLE = COLOURS = (
    "#000000", "#0072B2", "#009E73", "#E69F00", "#D55E00", "#56B4E9", "#CC79A7",
)  # fmt: skip
"""The palette of Okabe and Ito without yellow, which is hard to see on white paper."""
DASHES: tuple[Any, ...] = ("-", (0, (5, 2)), (0, (5, 1.5, 1, 1.5)), (0, (1, 1.2)), (0, (8, 1.5, 1, 1.5, 1, 1.5)))
"""Dash patterns in Matplotlib's format."""
MARKS = ("o", "s", "^", "D", "v", "P", "X")
