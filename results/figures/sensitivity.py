"""Sensitivity: test metrics over the swept numbers, one picture for all values.

As Unified Fig. 5 and SelHN Fig. 6 draw it: an objective without the parameter is a horizontal line.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from grid.expansion import Cell
from results.figures.study import FigureKind, Study, grouped
from results.figures.style import blank, legend_below, line_styles
from results.layouts.captions import METRIC_NAMES, block_title

Line = dict[float, Cell]
"""Cells by their value on an axis, in rising order; a cell that has no value on it is a line of its own."""


def together(studies: Sequence[Study]) -> list[Study]:
    """A study for every data set and recipe, with all swept values."""
    return grouped(studies, lambda cell: block_title((cell.dataset, cell.recipe, ())), lambda cell: cell.objective)


def draw(study: Study) -> Figure | None:
    """A column for each numeric axis, a row for each metric; None where no swept setting has several numbers."""
    cells = [cell for cell in study.part.cells.values() if study.scores.of(cell, "rsum").n]
    columns = {axis: lines_over(axis, cells) for axis in numeric_axes(cells)}
    drawn = {axis: lines for axis, lines in columns.items() if any(len(line) > 1 for line in lines.values())}
    if not drawn:
        return None
    styles = line_styles(list(dict.fromkeys(label for lines in drawn.values() for label in lines)))
    metrics = {f"{name}_r1": f"{title}\n{METRIC_NAMES['r1']}" for name, title in study.directions.items()}
    metrics["rsum"] = "rsum (%)"
    figure = blank(1.75 * len(metrics) + 0.9, study, "mean and ± one sample standard deviation over seeds")
    every = figure.subplots(len(metrics), len(drawn), sharex="col", sharey="row", squeeze=False)
    handles: dict[str, Any] = {}
    for row, (metric, title) in zip(every, metrics.items(), strict=True):
        for axes, lines in zip(row, drawn.values(), strict=True):
            for label, line in lines.items():
                handles[label] = _line(axes, study, line, metric, styles[label])
            axes.grid(visible=True)
            _scale(axes, sorted({value for line in lines.values() if len(line) > 1 for value in line}))
        row[0].set_ylabel(title)
    for axes, axis in zip(every[-1], drawn, strict=True):
        axes.set_xlabel(axis)
    figure.align_ylabels()
    legend_below(figure, handles.values(), handles, most=3)
    return figure


def numeric_axes(cells: Sequence[Cell]) -> list[str]:
    """The swept settings that have several values, all numbers."""
    values: dict[str, set[object]] = {}
    for cell in cells:
        for axis, value in cell.swept:
            values.setdefault(axis, set()).add(value)
    return [
        axis
        for axis, found in values.items()
        if len(found) > 1 and all(isinstance(value, int | float) and not isinstance(value, bool) for value in found)
    ]


def lines_over(axis: str, cells: Sequence[Cell]) -> dict[str, Line]:
    """The lines over an axis by label: a line an objective and values on the other axes that its trials read.

    An objective that has a line of several values has no horizontal lines beside it.
    """
    grouped: dict[tuple[str, tuple[Any, ...]], Line] = {}
    for cell in cells:
        others = tuple(pair for pair in cell.swept if pair[0] != axis)
        grouped.setdefault((cell.objective, others), {})[float(dict(cell.swept)[axis])] = cell
    found: dict[tuple[str, ...], tuple[tuple[str, tuple[Any, ...]], Line]] = {}
    for key, line in grouped.items():
        if len({cell.trials[0].id for cell in line.values()}) == 1:  # the objective does not read the axis
            line = dict(list(line.items())[:1])
        found.setdefault(tuple(cell.trials[0].id for cell in line.values()), (key, line))
    curved = {objective for (objective, _), line in found.values() if len(line) > 1}
    kept = [entry for entry in found.values() if len(entry[1]) > 1 or entry[0][0] not in curved]
    return {_label(key, kept): dict(sorted(line.items())) for key, line in kept}


def _label(key: tuple[str, tuple[Any, ...]], kept: Sequence[tuple[tuple[str, tuple[Any, ...]], Line]]) -> str:
    """The objective, with the values of the other axes where it has several lines."""
    objective, others = key
    rivals = [other for (name, other), _ in kept if name == objective]
    told = [pair for place, pair in enumerate(others) if len({rival[place] for rival in rivals}) > 1]
    return ", ".join([objective, *(f"{axis.rpartition('.')[2]} = {value}" for axis, value in told)])


def _line(axes: Axes, study: Study, line: Mapping[float, Cell], metric: str, style: dict[str, Any]) -> Any:
    scores = [study.scores.of(cell, metric) for cell in line.values()]
    means, spreads = (np.array([getattr(score, name) for score in scores]) for name in ("mean", "std"))
    if len(line) == 1:
        (mean,), (spread,) = means, spreads
        if np.isfinite(spread):
            axes.axhspan(mean - spread, mean + spread, color=style["color"], alpha=0.08, linewidth=0)
        return axes.axhline(mean, color=style["color"], linestyle=style["linestyle"], linewidth=1.2)
    places = list(line)
    axes.fill_between(places, means - spreads, means + spreads, color=style["color"], alpha=0.12, linewidth=0)
    return axes.plot(places, means, markersize=4, linewidth=1.4, **style)[0]


def _scale(axes: Axes, values: Sequence[float]) -> None:
    """Mark the values; a logarithmic axis where their ratios differ by less than their differences, linear near 0."""
    positive = [value for value in values if value > 0]
    steps = np.diff(positive)
    if len(positive) > 2 and steps.max() > 2 * steps.min():
        if len(positive) == len(values):
            axes.set_xscale("log")
        else:
            axes.set_xscale("symlog", linthresh=positive[0], linscale=0.4)
        axes.minorticks_off()
    axes.set_xticks(values, [f"{value:g}" for value in values])


FIGURE_KIND = FigureKind(
    7, draw, "Sensitivity", "a swept setting with several numbers, e.g. sweep.objective.tau", together
)
