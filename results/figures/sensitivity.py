"""Metrics over settings: sensitivity to swept numbers, and the points of validation searches.

Sensitivity is drawn as in Unified Fig. 5 and SelHN Fig. 6: an objective without the parameter is a horizontal line; one
with the parameter but finished trials at a single value is a point.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from goalgrid.grid.chosen import Chosen
from goalgrid.grid.expansion import Cell, block_title, with_values
from goalgrid.grid.groups import grouped, nested
from goalgrid.grid.palette import BLUE, FAINT, INK
from goalgrid.results.figures.study import FigureKind, Study, regrouped
from goalgrid.results.figures.style import blank, legend_below, line_styles
from goalgrid.results.layouts.captions import METRIC_NAMES

LineKey = tuple[str, tuple[Any, ...]]
"""Objective, and its values on the other axes."""


@dataclass(frozen=True)
class Line:
    cells: Mapping[float, Cell]
    """Cells by their value on the axis, in ascending order; for a horizontal line, only the first cell."""
    horizontal: bool

    @property
    def trials(self) -> set[str]:
        """The id of one trial per cell; cells that share a trial show the same numbers."""
        return {cell.trials[0].id for cell in self.cells.values()}


def together(studies: Sequence[Study]) -> list[Study]:
    """Return one study per data set and recipe, with all swept values."""
    return regrouped(studies, lambda cell: block_title((cell.dataset, cell.recipe, ())), lambda cell: cell.objective)


def draw(study: Study) -> Figure | None:
    """Draw one column per numeric axis, and one row per metric; None if no swept setting has several numbers."""
    cells = [cell for cell in study.part.cells.values() if study.scores.of(cell, "rsum").n]
    values = grouped(pair for cell in cells for pair in cell.swept)
    numeric = [axis for axis, swept in values.items() if {*map(type, swept)} <= {int, float} and len({*swept}) > 1]
    columns = {axis: lines_over(axis, cells) for axis in numeric}
    shown = {axis: lines for axis, lines in columns.items() if any(len(line.cells) > 1 for line in lines.values())}
    if not shown:
        return None
    styles = line_styles(list(dict.fromkeys(label for lines in shown.values() for label in lines)))
    metrics = {f"{name}_r1": f"{title}\n{METRIC_NAMES['r1']}" for name, title in study.directions.items()}
    metrics["rsum"] = "rsum (%)"
    figure = blank(1.75 * len(metrics) + 0.9, study, study.spread)
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
    figure.align_ylabels(every[:, 0])
    legend_below(figure, handles.values(), handles, most=3)
    return figure


def lines_over(axis: str, cells: Sequence[Cell]) -> dict[str, Line]:
    """Return the lines over an axis by label: one per objective and combination of values on the other axes.

    If an objective has a line with several values, its horizontal lines are omitted, as are lines whose trials are all
    in another line.
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
    """Build an objective's line, horizontal if all cells share a trial or the only cell lacks the parameter."""
    section, _, name = axis.partition(".")
    first, *others = (cell.trials[0] for cell in cells.values())
    horizontal = all(trial.id == first.id for trial in others)
    if not others:
        horizontal = section == "objective" and name not in first.shared.objective.parameters
    return Line(dict(list(cells.items())[:1]) if horizontal else cells, horizontal)


def _label(key: LineKey, shown: Sequence[LineKey]) -> str:
    """Label a line by its objective, and by values on other axes if the objective has several lines."""
    objective, others = key
    rivals = [other for name, other in shown if name == objective]
    varying = [pair for place, pair in enumerate(others) if len({rival[place] for rival in rivals}) > 1]
    return with_values(objective, ((axis.rpartition(".")[2], value) for axis, value in varying))


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
    """Set ticks at the values; use a logarithmic axis if they are spaced like a geometric series (linear near 0)."""
    positive = [value for value in values if value > 0]
    steps = np.diff(positive)
    if len(positive) > 2 and steps.max() > 2 * steps.min():
        if len(positive) == len(values):
            axes.set_xscale("log")
        else:
            axes.set_xscale("symlog", linthresh=positive[0], linscale=0.4)
        axes.minorticks_off()
    axes.set_xticks(values, [f"{value:g}" for value in values])


_FACTOR = 10
"""Positive numbers get a logarithmic axis if the largest is at least this many times the smallest."""


def draw_search(study: Study) -> Figure | None:
    """Draw all tried points, one row per cell and one column per searched setting; None without a search."""
    of_cells = [(name, cell.choices) for name, cell in study.part.cells.items()]
    chosen = {
        f"{name}, {choice.search}" if choice.search else name: choice
        for name, choices in of_cells
        for choice in choices
    }
    if not any(one.point for choice in chosen.values() for one in choice.tried):
        return None
    settings = list(dict.fromkeys(name for choice in chosen.values() for one in choice.tried for name, _ in one.point))
    metric = next(iter(chosen.values())).by.removeprefix("val_")
    note = f"{metric} on the validation split; ring: the chosen point; hollow: stopped"
    figure = blank(0.85 * len(chosen) + 0.9, study, note)
    every = figure.subplots(len(chosen), len(settings), sharex="col", squeeze=False)
    for row, (name, choice) in zip(every, chosen.items(), strict=True):
        for axes, setting in zip(row, settings, strict=True):
            _points(axes, choice, setting)
        row[0].set_ylabel(name, rotation=0, ha="right", va="center")
    for axes, setting in zip(every[-1], settings, strict=True):
        axes.set_xlabel(setting)
        places = [
            place for cells in every for line in cells[settings.index(setting)].lines for place in line.get_xdata()
        ]
        if not any(isinstance(place, str) for place in places) and 0 < _FACTOR * min(places) <= max(places):
            axes.set_xscale("log")
    return figure


def _points(axes: Axes, choice: Chosen, setting: str) -> None:
    """Draw a cell's tried points over a setting; `not read` if the cell does not use it."""
    if not any(setting in dict(one.point) for one in choice.possible):
        axes.text(0.5, 0.5, "not read", color=FAINT, transform=axes.transAxes, ha="center", va="center")
        axes.set_yticks([])
        return
    tried = [one for one in choice.possible if setting in dict(one.point)]  # the default may have no value
    values = [dict(one.point)[setting] for one in tried]
    places = [str(value) if isinstance(value, bool) else value for value in values]
    for done in (False, True):
        points = [(place, t.value) for place, t in zip(places, tried, strict=True) if t.done is done]
        (marks,) = axes.plot([x for x, _ in points], [y for _, y in points], "o", markersize=4)
        marks.set(color=BLUE if done else FAINT, fillstyle="full" if done else "none")
    best = [place for place, one in zip(places, tried, strict=True) if one is choice.best]
    axes.plot(best, [choice.best.value] * len(best), "o", markersize=9, color=INK, fillstyle="none")
    axes.margins(0.06, 0.2)
    axes.grid(visible=True)


FIGURE_KINDS = {
    "sensitivity": FigureKind(
        7, draw, "Sensitivity", "a swept setting with several numbers, e.g. sweep.objective.tau", together
    ),
    "search": FigureKind(
        12, draw_search, "Search", "settings chosen on the validation split by [select] in the grid file"
    ),
}
