"""Where triplets lie on the plane of (s_pos, hardest s_neg), over what the objective gives them there.

GOAL Figs 2 and 3 show the weights alone; a weight that is near 0 where all triplets lie teaches nothing.
"""

import math

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from goalgrid.grid.palette import BLUE, VERMILION
from goalgrid.results.figures.study import FigureKind, Study
from goalgrid.results.figures.style import WIDTH, blank
from goalgrid.results.records import steps

SHOWN = 4
"""Epochs of a cell that are drawn, the first and the last among them."""
LINES = 15


def draw(study: Study) -> Figure | None:
    """A row a cell, a column an epoch; grey: the weight; red: triplets of the first seed; None without any."""
    densities = {name: steps.read_densities(study.home.trial(study.trials(name)[0]).triplets, study.scores.leave)
            for name in study.part.cells if study.trials(name)}  # fmt: skip
    densities = {name: density for name, density in list(densities.items())[:LINES] if density[0]}
    if not densities:
        return None
    columns = min(SHOWN, max(len(counts) for counts, _ in densities.values()))
    figure = blank(
        WIDTH / SHOWN * len(densities) + 0.7,
        study,
        "grey: T, or the push of a loss; red: where the triplets of one seed lie",
    )
    every = figure.subplots(len(densities), columns, sharex=True, sharey=True, squeeze=False)
    for row, (name, (counts, weights)) in zip(every, densities.items(), strict=True):
        epochs = sorted(counts)
        chosen = [epochs[place] for place in np.linspace(0, len(epochs) - 1, columns).round().astype(int)]
        for axes, epoch in zip(row, chosen, strict=True):
            _panel(axes, np.array(counts[epoch]), np.array(weights, dtype=float))
            axes.set_title(f"epoch {epoch}", fontsize="medium")
        row[0].set_ylabel(f"{name}\n$s_{{neg}}$")
    for axes in every[-1]:
        axes.set_xlabel("$s_{pos}$")
    return figure


def mean_weight(counts: np.ndarray, weights: np.ndarray) -> float:
    return float((counts * weights).sum() / counts.sum()) if counts.sum() else math.nan


def _panel(axes: Axes, counts: np.ndarray, weights: np.ndarray) -> None:
    bins = math.isqrt(len(counts))
    middles = (np.arange(bins) + 0.5) / bins * 2 - 1
    top = max(1.0, float(np.nanmax(np.abs(weights)))) if np.isfinite(weights).any() else 1.0
    plane, density = weights.reshape(bins, bins).T, counts.reshape(bins, bins).T  # s_neg goes up
    axes.imshow(plane, origin="lower", extent=(-1, 1, -1, 1), cmap="Greys", vmin=0, vmax=top, alpha=0.4)
    levels = density.max() * np.array([0.1, 0.5])
    axes.contourf(middles, middles, density, levels=[*levels, density.max() + 1], colors=[VERMILION], alpha=0.85)
    axes.plot([-1, 1], [-1, 1], color=BLUE, linewidth=0.7, linestyle=":")
    axes.text(0.97, -0.47, f"mean {mean_weight(counts, weights):.2g}", fontsize="small", ha="right", va="bottom")
    axes.set(xlim=(-0.5, 1), ylim=(-0.5, 1), aspect="equal")


FIGURE_KINDS = {"triplets": FigureKind(8, draw, "Where triplets lie", "trials with train.trace_every")}
