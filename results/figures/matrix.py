"""GOAL Tables 3 to 5 as a picture: pair weights as rows, triplet weights as columns, one heat map a direction."""

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from goalgrid.grid.objectives.goal_matrix import PAIR_WEIGHTS, TRIPLET_WEIGHTS
from goalgrid.grid.palette import INK
from goalgrid.results.analysis.factors import factors_of
from goalgrid.results.figures.study import FigureKind, Study
from goalgrid.results.figures.style import blank, symbol
from goalgrid.results.layouts.captions import METRIC_NAMES
from goalgrid.results.records.scores import Score, best

NOTE = "mean ± sample standard deviation over seeds; best in bold"


def draw(study: Study) -> Figure | None:
    """Recall@1 of the matrix; None unless the objectives cross pair with triplet weights, two of each at least."""
    factors, _ = factors_of(study.part.places)
    if len(factors) != 2:
        return None
    pairs = [pair for pair in PAIR_WEIGHTS if any(name.startswith(f"{pair}_") for name in study.part.cells)]
    triplets = [triplet for triplet in TRIPLET_WEIGHTS if any(n.endswith(f"_{triplet}") for n in study.part.cells)]
    figure = blank(0.46 * len(pairs) + 1.15, study, NOTE)
    for axes, (direction, title) in zip(figure.subplots(1, 2), study.directions.items(), strict=True):
        scores = [
            [study.scores.of(study.part.cells[f"{pair}_{triplet}"], f"{direction}_r1") for triplet in triplets]
            for pair in pairs
        ]
        image = _heat(axes, scores)
        axes.set_title(title)
        axes.set_xticks(range(len(triplets)), [symbol("triplet weight", name) for name in triplets], fontsize=10)
        axes.set_yticks(range(len(pairs)), [symbol("pair weight", name) for name in pairs], fontsize=10)
        figure.colorbar(image, ax=axes, label=METRIC_NAMES["r1"], pad=0.02).outline.set_visible(False)
    return figure


def _heat(axes: Axes, scores: list[list[Score]]) -> Any:
    means = np.array([[score.mean for score in row] for row in scores])
    image = axes.imshow(means, cmap="cividis", aspect="auto")
    winners = best([score for row in scores for score in row])
    for (row, column), mean in np.ndenumerate(means):
        score = scores[row][column]
        dark = bool(np.asarray(image.norm(mean)) < 0.55) if np.isfinite(mean) else False
        first = row * means.shape[1] + column in winners
        axes.text(column, row, score.text, ha="center", va="center", fontsize=8.5 if score.n == score.expected else 7,
                  color="white" if dark else INK, weight="bold" if first else "normal")  # fmt: skip
    axes.set_xticks(np.arange(1, means.shape[1]) - 0.5, minor=True)
    axes.set_yticks(np.arange(1, means.shape[0]) - 0.5, minor=True)
    axes.grid(which="minor", color="white", linewidth=1.5)
    axes.tick_params(which="both", length=0)
    axes.spines[:].set_visible(False)
    return image


FIGURE_KINDS = {
    "matrix": FigureKind(1, draw, "The matrix", "objectives of GOAL's matrix, of two pair and two triplet weights")
}
