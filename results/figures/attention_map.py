"""Which words look at which regions, as a matrix, and as boxes on the picture."""

from collections.abc import Mapping
from dataclasses import dataclass
from math import ceil
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.gridspec import GridSpecFromSubplotSpec
from matplotlib.patches import Rectangle
from matplotlib.ticker import MaxNLocator

from goalgrid.grid.palette import FAINT, INK
from goalgrid.results.figures.style import WIDTH, drawing

DIRECTIONS = {"t2i": "words attend to regions\n(rows sum to 1)", "i2t": "regions attend to words\n(columns sum to 1)"}
COLUMNS = 6
MOST = 24
DARK = 0.25
"""Brightness of what a word does not look at."""


@dataclass(frozen=True, eq=False)
class AttentionMap:
    """The attention of a trained model between the words of a caption and the regions of an image.

    Args:
        image: name of the image.
        words: as the model reads them, l of them.
        weights: (l, n) by direction, t2i or i2t.
        picture: (h, w, 3) of 8 bits; None: there is none.
        boxes: (n, 4) left, top, right, bottom of the regions, as shares of the picture's sides; None: not known.
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
        """The picture and a matrix for each direction; below, what each word looks at, the more the brighter."""
        with drawing():
            return self._drawn()

    def _drawn(self) -> Figure:
        shown = self.words[:MOST] if self.picture is not None and self.boxes is not None else ()
        lines = ceil(len(shown) / COLUMNS)
        matrix = 0.16 * len(self.words) + 0.9
        figure = Figure(figsize=(WIDTH, matrix + 1.3 * lines + 0.5), layout="constrained")
        title = figure.suptitle(self.caption, fontsize=10, color=INK, x=0.01, ha="left", weight="bold", wrap=True)
        title.set_parse_math(False)
        figure.supxlabel(f"{self.image}   {self.trial}", fontsize=7, color="#666666", parse_math=False)
        rows = figure.add_gridspec(1 + bool(lines), 1, height_ratios=[matrix, *([1.3 * lines] if lines else [])])
        pictures = [] if self.picture is None else [self.picture]
        top = GridSpecFromSubplotSpec(1, len(pictures) + len(self.weights), rows[0])
        for place, picture in enumerate(pictures):
            self._photograph(figure.add_subplot(top[place]), picture)
        for place, direction in enumerate(self.weights, len(pictures)):
            self._matrix(figure.add_subplot(top[place]), direction)
        if shown:
            below = GridSpecFromSubplotSpec(lines, COLUMNS, rows[1])
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
        """The picture, the brighter the more the word looks there; the strongest region has a frame."""
        assert self.picture is not None
        assert self.boxes is not None
        weights = next(iter(self.weights.values()))[place]
        height, width = self.picture.shape[:2]
        seen = np.zeros((height, width, 1))
        for box, weight in zip(self.boxes, weights / max(weights.max(), 1e-30), strict=True):
            left, top, right, bottom = _pixels(box, width, height)
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


def _pixels(box: np.ndarray, width: int, height: int) -> tuple[int, int, int, int]:
    left, top = int(box[0] * width), int(box[1] * height)
    return left, top, max(left + 1, ceil(box[2] * width)), max(top + 1, ceil(box[3] * height))
