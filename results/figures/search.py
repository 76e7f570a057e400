"""The search of each cell: the validation metric of its points over every setting that it chose, and the choice."""

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from goalgrid.grid.palette import BLUE, FAINT, INK
from goalgrid.grid.select import Chosen
from goalgrid.results.figures.study import FigureKind, Study
from goalgrid.results.figures.style import blank

_FACTOR = 10
"""Numbers above 0 whose ends differ by this factor stand on a logarithmic axis."""


def draw(study: Study) -> Figure | None:
    """A row for each cell, a column for each chosen setting; None where validation chose nothing."""
    chosen = {name: cell.chosen for name, cell in study.part.cells.items() if cell.chosen}
    if not any(choice.best.point for choice in chosen.values()):
        return None
    settings = list(dict.fromkeys(name for choice in chosen.values() for name, _ in choice.best.point))
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
    """The points of a cell over a setting; a cell that does not read the setting has none there."""
    if setting not in dict(choice.best.point):
        axes.text(0.5, 0.5, "not read", color=FAINT, transform=axes.transAxes, ha="center", va="center")
        axes.set_yticks([])
        return
    values = [dict(tried.point)[setting] for tried in choice.tried]
    places = [str(value) if isinstance(value, bool) else value for value in values]
    best = choice.tried.index(choice.best)
    for done in (False, True):
        points = [(place, t.value) for place, t in zip(places, choice.tried, strict=True) if t.done is done]
        (marks,) = axes.plot([x for x, _ in points], [y for _, y in points], "o", markersize=4)
        marks.set(color=BLUE if done else FAINT, fillstyle="full" if done else "none")
    axes.plot(places[best : best + 1], [choice.best.value], "o", markersize=9, color=INK, fillstyle="none")
    axes.margins(0.06, 0.2)
    axes.grid(visible=True)


FIGURE_KINDS = {"search": FigureKind(12, draw, "Search", "settings that validation chose, by [select] of a grid file")}
