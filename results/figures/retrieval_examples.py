"""What queries find: the first answers of each, right and wrong ones marked. VSE+2AD Fig. 4."""

from collections.abc import Sequence
from dataclasses import dataclass
from textwrap import fill

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from goalgrid.grid.palette import INK
from goalgrid.results.figures.style import WIDTH, drawing

RIGHT, WRONG = "#1A7F37", "#B42318"
LARGEST = 160
"""Pixels of the longer side of a picture, so that a figure stays small."""
HEIGHT, LOW = 1.35, 1.0
"""Inches of a query with pictures, and without."""


@dataclass(frozen=True, eq=False)
class Shown:
    """A query or an answer: a caption, or an image by its name and its picture of (h, w, 3) 8 bits."""

    text: str
    picture: np.ndarray | None = None


@dataclass(frozen=True, eq=False)
class Retrieved:
    """A query with its first answers, and whether each is right."""

    why: str
    query: Shown
    answers: Sequence[Shown]
    right: Sequence[bool]

    @property
    def pictured(self) -> bool:
        return any(shown.picture is not None for shown in (self.query, *self.answers))


@dataclass(frozen=True, eq=False)
class RetrievalExamples:
    trial: str
    queries: Sequence[Retrieved]

    def draw(self) -> Figure:
        """A row for each query: the query, then its answers; right answers green with a tick, wrong ones red."""
        with drawing():
            heights = [HEIGHT if query.pictured else LOW for query in self.queries]
            figure = Figure(figsize=(WIDTH, sum(heights)))
            rows = np.atleast_1d(np.asarray(figure.subfigures(len(heights), 1, hspace=0.0, height_ratios=heights)))
            for row, query in zip(rows, self.queries, strict=True):
                row.suptitle(query.why, fontsize=7.5, x=0.01, y=0.99, ha="left", va="top", color=INK, parse_math=False)
                axes = row.subplots(1, 1 + len(query.answers), width_ratios=[1.3, *[1.0] * len(query.answers)])
                row.subplots_adjust(left=0.01, right=0.99, top=0.83, bottom=0.1, wspace=0.08)
                _show(axes[0], query.query, INK, "")
                for place, (answer, right) in enumerate(zip(query.answers, query.right, strict=True)):
                    _show(axes[place + 1], answer, RIGHT if right else WRONG, "✓" if right else "✗")
            figure.text(0.99, 1 - 0.01 / len(heights), self.trial, fontsize=6, ha="right", va="top", color="#666666")
            return figure


def _show(axes: Axes, shown: Shown, colour: str, mark: str) -> None:
    axes.set_xticks([])
    axes.set_yticks([])
    axes.spines[:].set_visible(shown.picture is not None)
    axes.spines[:].set(color=colour, linewidth=2.0 if mark else 0.6)
    if shown.picture is None:
        text = fill(f"{mark} {shown.text}".strip(), 22 if mark else 28, max_lines=7)
        axes.text(0, 0.98, text, fontsize=6.5, va="top", color=colour, transform=axes.transAxes, parse_math=False)
        return
    step = -(-max(shown.picture.shape[:2]) // LARGEST)
    axes.imshow(shown.picture[::step, ::step], aspect="equal", interpolation="nearest")
    if mark:
        axes.set_xlabel(mark, color=colour, fontsize=8, labelpad=1)
