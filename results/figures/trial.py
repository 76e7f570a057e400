"""Figures of one trial: attention between words and regions, and retrieval examples."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil
from pathlib import Path
from textwrap import fill

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.ticker import MaxNLocator

from goalgrid.grid.palette import FAINT, INK
from goalgrid.results.figures.style import WIDTH, drawing

DIRECTIONS = {"t2i": "words attend to regions\n(rows sum to 1)", "i2t": "regions attend to words\n(columns sum to 1)"}
COLUMNS = 6
MOST = 24
DARK = 0.25
"""Brightness of regions that a word does not attend to."""


@dataclass(frozen=True, eq=False)
class AttentionMap:
    """The attention of a trained model between the words of a caption and the regions of an image.

    Args:
        image: name of the image.
        words: the l words as the model reads them.
        weights: (l, n) for each direction, t2i or i2t.
        picture: (h, w, 3), 8 bits per channel; None if there is none.
        boxes: (n, 4) left, top, right, bottom of the regions, relative to the picture's size; None if unknown.
    """

    trial: str
    image: str
    caption: str
    words: tuple[str, ...]
    weights: Mapping[str, np.ndarray]
    picture: np.ndarray | None = None
    boxes: np.ndarray | None = None

    @property
    def name(self) -> str:
        return f"{self.trial}-{Path(self.image).stem}-{self.caption[:40]}"

    def draw(self) -> Figure:
        """Draw the picture and a matrix per direction; below, a picture per word, brighter where it attends more."""
        with drawing():
            shown = self.words[:MOST] if self.picture is not None and self.boxes is not None else ()
            lines = ceil(len(shown) / COLUMNS)
            matrix = 0.16 * len(self.words) + 0.9
            figure = Figure(figsize=(WIDTH, matrix + 1.3 * lines + 0.5), layout="constrained")
            title = figure.suptitle(self.caption, fontsize=10, color=INK, x=0.01, ha="left", weight="bold", wrap=True)
            title.set_parse_math(False)
            figure.supxlabel(f"{self.image}   {self.trial}", fontsize=7, color="#666666", parse_math=False)
            rows = figure.add_gridspec(1 + bool(lines), 1, height_ratios=[matrix, *([1.3 * lines] if lines else [])])
            pictures = [] if self.picture is None else [self.picture]
            top = rows[0].subgridspec(1, len(pictures) + len(self.weights))
            for place, picture in enumerate(pictures):
                self._photograph(figure.add_subplot(top[place]), picture)
            for place, direction in enumerate(self.weights, len(pictures)):
                self._matrix(figure.add_subplot(top[place]), direction)
            if shown:
                below = rows[1].subgridspec(lines, COLUMNS)
                for place, word in enumerate(shown):
                    self._looked_at(figure.add_subplot(below[place // COLUMNS, place % COLUMNS]), place, word)
            return figure

    def _matrix(self, axes: Axes, direction: str) -> None:
        weights = self.weights[direction]
        image = axes.imshow(weights, cmap="cividis", aspect="auto", vmin=0)
        axes.set_title(DIRECTIONS[direction], fontsize=8)
        axes.set_xlabel("region")
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.set_yticks(range(len(self.words)), self.words, fontsize=7, parse_math=False)
        axes.spines[:].set_visible(False)
        assert axes.figure is not None
        axes.figure.colorbar(image, ax=axes, pad=0.02).outline.set_visible(False)

    def _photograph(self, axes: Axes, picture: np.ndarray) -> None:
        axes.imshow(picture)
        axes.axis("off")
        for region, box in enumerate(() if self.boxes is None else self.boxes):
            self._outline(axes, box, picture.shape, FAINT, 0.6)
            left, top = box[0] * picture.shape[1], box[1] * picture.shape[0]
            axes.text(left, top, str(region), fontsize=5, color="white", va="top",
                      bbox={"facecolor": INK, "edgecolor": "none", "pad": 0.6, "alpha": 0.7})  # fmt: skip

    def _looked_at(self, axes: Axes, place: int, word: str) -> None:
        """Draw the picture, brighter where the word attends more, with a frame around the strongest region."""
        assert self.picture is not None
        assert self.boxes is not None
        weights = next(iter(self.weights.values()))[place]
        height, width = self.picture.shape[:2]
        seen = np.zeros((height, width, 1))
        for box, weight in zip(self.boxes, weights / max(weights.max(), 1e-30), strict=True):
            left, top = int(box[0] * width), int(box[1] * height)
            right, bottom = max(left + 1, ceil(box[2] * width)), max(top + 1, ceil(box[3] * height))
            seen[top:bottom, left:right] = np.maximum(seen[top:bottom, left:right], weight)
        axes.imshow((self.picture * (DARK + (1 - DARK) * seen)).astype(np.uint8))
        self._outline(axes, self.boxes[int(weights.argmax())], self.picture.shape, "#FFD400", 1.2)
        axes.set_title(f"{word} {weights.max():.2f}", fontsize=7, parse_math=False)
        axes.axis("off")

    @staticmethod
    def _outline(axes: Axes, box: np.ndarray, shape: tuple[int, ...], colour: str, width: float) -> None:
        left, top, right, bottom = box * np.array([shape[1], shape[0], shape[1], shape[0]])
        axes.add_patch(
            Rectangle((left, top), right - left, bottom - top, fill=False, edgecolor=colour, linewidth=width)
        )


RIGHT, WRONG = "#1A7F37", "#B42318"
LARGEST = 160
"""Maximum pixels on the longer side of a picture, to limit the file size."""
HEIGHT, LOW = 1.35, 1.0
"""Height of a query's row in inches, with and without pictures."""


@dataclass(frozen=True, eq=False)
class Shown:
    """A query or answer: a caption, or an image with its name and picture, (h, w, 3) with 8 bits per channel."""

    text: str
    picture: np.ndarray | None = None


@dataclass(frozen=True, eq=False)
class Retrieved:
    """A query with its top answers, and whether each is correct."""

    why: str
    query: Shown
    answers: Sequence[Shown]
    right: Sequence[bool]


@dataclass(frozen=True, eq=False)
class RetrievalExamples:
    """The top answers to queries, marked as correct or wrong, as in VSE+2AD Fig. 4."""

    trial: str
    queries: Sequence[Retrieved]

    def draw(self) -> Figure:
        """Draw one row per query: the query, then its answers; correct ones green with a tick, wrong ones red."""
        with drawing():
            shown = [[query.query, *query.answers] for query in self.queries]
            heights = [LOW if all(part.picture is None for part in parts) else HEIGHT for parts in shown]
            figure = Figure(figsize=(WIDTH, sum(heights)))
            rows = figure.subfigures(len(heights), 1, squeeze=False, hspace=0.0, height_ratios=heights)[:, 0]
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
