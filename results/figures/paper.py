"""Ours over the paper's: a point an objective, with both spreads, beside the line on which they are equal."""

import math
from collections.abc import Mapping
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from goalgrid.grid.palette import FAINT
from goalgrid.results.figures.study import FigureKind, Study
from goalgrid.results.figures.style import PLAIN, blank, point_legend, point_looks
from goalgrid.results.layouts.captions import METRIC_NAMES
from goalgrid.results.reference.matching import Difference, Match, reported

NOTE = "bars: ± one standard deviation over seeds and runs; dashed: equal; paper:"


def draw(study: Study) -> Figure | None:
    """Recall@1, a panel a direction; None where no paper reports what was trained."""
    match = reported(
        list(study.part.cells.values()), study.scores, [f"{direction}_r1" for direction in study.directions]
    )
    panels = {direction: _pairs(study, match, f"{direction}_r1") for direction in study.directions}
    shown = {direction: pairs for direction, pairs in panels.items() if pairs}
    if not shown:
        return None
    names = [name for name in study.part.cells if any(name in pairs for pairs in shown.values())]
    looks = point_looks(names)
    figure = blank(4.2, study, f"{NOTE} {', '.join(match.sources)}")
    every = figure.subplots(1, len(shown), squeeze=False)[0]
    for axes, (direction, pairs) in zip(every, shown.items(), strict=True):
        for name, pair in pairs.items():
            _point(axes, pair, looks[name])
        _square(axes)
        axes.set_title(study.directions[direction])
        axes.set_xlabel(f"paper's {METRIC_NAMES['r1']}")
        axes.set_ylabel(f"our {METRIC_NAMES['r1']}")
    point_legend(figure, names, looks)
    return figure


def _pairs(study: Study, match: Match, metric: str) -> dict[str, Difference]:
    """Our value and the paper's, by the name of the cell, for the cells that have both, the paper's beyond doubt."""
    pairs: dict[str, Difference] = {}
    for name, cell in study.part.cells.items():
        ours, theirs = study.scores.of(cell, metric), match.of(cell, metric)
        if ours.n and theirs and not theirs.doubt:
            pairs[name] = Difference(ours, theirs.value)
    return pairs


def _point(axes: Axes, pair: Difference, look: Mapping[str, Any]) -> None:
    """Bars only where there is a spread."""
    across, along = (value if math.isfinite(value) else None for value in (pair.theirs.std, pair.ours.std))
    style = {**look, **PLAIN, "markeredgecolor": "white", "markeredgewidth": 0.6, "elinewidth": 0.8}
    axes.errorbar(pair.theirs.mean, pair.ours.mean, xerr=across, yerr=along, **style)


def _square(axes: Axes) -> None:
    """Both axes over one range, with the line on which both are equal."""
    axes.set_box_aspect(1)
    low = min(axes.get_xlim()[0], axes.get_ylim()[0])
    high = max(axes.get_xlim()[1], axes.get_ylim()[1])
    axes.plot([low, high], [low, high], color=FAINT, linewidth=0.9, linestyle=(0, (4, 3)), zorder=0)
    axes.set_xlim(low, high)
    axes.set_ylim(low, high)
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_locator(MaxNLocator(6))
    axes.grid(visible=True)


FIGURE_KIND = FigureKind(
    5, draw, "The paper's numbers and ours", "cells whose Recall@1 a paper prints: goalgrid tables"
)
