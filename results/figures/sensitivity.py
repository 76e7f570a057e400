"""Sensitivity: test metrics over the swept numbers, one picture for all values.

As Unified Fig. 5 and SelHN Fig. 6 draw it: an objective without the parameter is a horizontal line. An objective with
the parameter that has finished trials at a single value is a point there.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from goalgrid.grid.expansion import Cell
from goalgrid.grid.groups import grouped, nested
from goalgrid.results.figures.study import FigureKind, Study, regrouped
from goalgrid.results.figures.style import blank, legend_below, line_styles
from goalgrid.results.layouts.captions import METRIC_NAMES, block_title

LineKey = tuple[str, tuple[Any, ...]]
"""Objective, and values on the other axes."""


@dataclass(frozen=True)
class Line:
    cells: Mapping[float, Cell]
    """By their value on the axis, in rising order; of a horizontal line, the first."""
    horizontal: bool

    @property
    def trials(self) -> set[str]:
        """The id of a trial of each cell: cells that share it show the same numbers."""
        return {cell.trials[0].id for cell in self.cells.values()}


def together(studies: Sequence[Study]) -> list[Study]:
    """A study for every data set and recipe, with all swept values."""
    return regrouped(studies, lambda cell: block_title((cell.dataset, cell.recipe, ())), lambda cell: cell.objective)


def draw(study: Study) -> Figure | None:
    """A column for each numeric axis, a row for each metric; None where no swept setting has several numbers."""
    cells = [cell for cell in study.part.cells.values() if study.scores.of(cell, "rsum").n]
    columns = {axis: lines_over(axis, cells) for axis in numeric_axes(cells)}
    shown = {axis: lines for axis, lines in columns.items() if any(len(line.cells) > 1 for line in lines.values())}
    if not shown:
        return None
    styles = line_styles(list(dict.fromkeys(label for lines in shown.values() for label in lines)))
    metrics = {f"{name}_r1": f"{title}\n{METRIC_NAMES['r1']}" for name, title in study.directions.items()}
    metrics["rsum"] = "rsum (%)"
    figure = blank(1.75 * len(metrics) + 0.9, study, "mean and ± one sample standard deviation over seeds")
    every = figure.subplots(len(metrics), len(shown), sharex="col", sharey="row", squeeze=False)
    handles: dict[str, Any] = {}
    for row, (metric, title) in zip(every, metrics.items(), strict=True):
        for axes, lines in zip(row, shown.values(), strict=True):
            for label, line in lines.items():
                handles[label] = _line(axes, study, line, metric, styles[label])
            axes.grid(visible=True)
            _scale(axes, sorted({value for line in lines.values() if not line.horizontal for value in line.cells}))
        row[0].set_ylabel(title)
    for axes, axis in zip(every[-1], shown, strict=True):
        axes.set_xlabel(axis)
    figure.align_ylabels()
    legend_below(figure, handles.values(), handles, most=3)
    return figure


def numeric_axes(cells: Sequence[Cell]) -> list[str]:
    values = grouped(pair for cell in cells for pair in cell.swept)
    return [axis for axis, swept in values.items() if {*map(type, swept)} <= {int, float} and len({*swept}) > 1]


def lines_over(axis: str, cells: Sequence[Cell]) -> dict[str, Line]:
    """The lines over an axis by label: a line an objective and values on the other axes that its trials read.

    An objective that has a line of several values has no horizontal lines beside it, and no line whose trials another
    line has, too.
    """
    others = [tuple(pair for pair in cell.swept if pair[0] != axis) for cell in cells]
    by_key = nested(((c.objective, o), float(dict(c.swept)[axis]), c) for c, o in zip(cells, others, strict=True))
    lines = dict[LineKey, Line]()
    for key, by_value in sorted(by_key.items(), key=lambda entry: -len(entry[1])):
        line = _line_of(axis, dict(sorted(by_value.items())))
        if not any(name == key[0] and line.trials <= other.trials for (name, _), other in lines.items()):
            lines[key] = line
    lines = {key: lines[key] for key in by_key if key in lines}
    curved = {objective for (objective, _), line in lines.items() if len(line.cells) > 1}
    shown = {key: line for key, line in lines.items() if not line.horizontal or key[0] not in curved}
    return {_label(key, list(shown)): line for key, line in shown.items()}


def _line_of(axis: str, cells: dict[float, Cell]) -> Line:
    """The cells of an objective as a line: horizontal if all share a trial, or a single one has no such parameter."""
    section, _, name = axis.partition(".")
    first, *others = (cell.trials[0] for cell in cells.values())
    horizontal = all(trial.id == first.id for trial in others)
    if not others:
        horizontal = section == "objective" and name not in first.shared.objective.parameters
    return Line(dict(list(cells.items())[:1]) if horizontal else cells, horizontal)


def _label(key: LineKey, shown: Sequence[LineKey]) -> str:
    """The objective, with the values of the other axes where it has several lines."""
    objective, others = key
    rivals = [other for name, other in shown if name == objective]
    varying = [pair for place, pair in enumerate(others) if len({rival[place] for rival in rivals}) > 1]
    return ", ".join([objective, *(f"{axis.rpartition('.')[2]} = {value}" for axis, value in varying)])


def _line(axes: Axes, study: Study, line: Line, metric: str, style: dict[str, Any]) -> Any:
    scores = [study.scores.of(cell, metric) for cell in line.cells.values()]
    means, spreads = (np.array([getattr(score, name) for score in scores]) for name in ("mean", "std"))
    if line.horizontal:
        (mean,), (spread,) = means, spreads
        if np.isfinite(spread):
            axes.axhspan(mean - spread, mean + spread, color=style["color"], alpha=0.08, linewidth=0)
        return axes.axhline(mean, color=style["color"], linestyle=style["linestyle"], linewidth=1.2)
    places = list(line.cells)
    if len(places) == 1:  # a band has no width there
        axes.vlines(places, means - spreads, means + spreads, color=style["color"], alpha=0.4, linewidth=1.4)
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


FIGURE_KINDS = {
    "sensitivity": FigureKind(
        7, draw, "Sensitivity", "a swept setting with several numbers, e.g. sweep.objective.tau", together
    )
}
