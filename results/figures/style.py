"""How figures look: one palette, the papers' notation, and files equal to the byte."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from io import BytesIO
from itertools import cycle
from typing import Any, Literal

import numpy as np
from matplotlib import rc_context
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from goalgrid.grid.objectives.goal_matrix import CELLS, GOAL, PAIR_WEIGHTS, TRIPLET_WEIGHTS
from goalgrid.grid.palette import COLOURS, DASHES, FAINT, INK, MARKS
from goalgrid.results.figures.study import Study
from goalgrid.results.reference.curves import PrintedCurve

WIDTH = 7.2
"""Inches: two columns of a paper."""

_RC: dict[Any, Any] = {
    "font.family": "DejaVu Sans",
    "font.size": 8.5,
    "axes.titlesize": 9.5,
    "axes.labelsize": 9,
    "axes.edgecolor": FAINT,
    "axes.labelcolor": INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "xtick.labelsize": 8,
    "ytick.labelsize": 8,
    "xtick.color": INK,
    "ytick.color": INK,
    "text.color": INK,
    "grid.color": "#E6E6E6",
    "grid.linewidth": 0.6,
    "axes.axisbelow": True,
    "legend.frameon": False,
    "legend.handlelength": 3.0,
    "pdf.fonttype": 42,
    "svg.hashsalt": "goalgrid",
    "savefig.dpi": 200,
}
_NO_DATE: dict[str, dict[str, Any]] = {"png": {"Software": None}, "pdf": {"CreationDate": None}, "svg": {"Date": None}}
FORMATS = tuple(_NO_DATE)


def drawing() -> Any:
    """The look of all figures, as a context."""
    return rc_context(_RC)


def encoded(figure: Figure, kind: str) -> bytes:
    """A figure in one of `FORMATS`, equal to the byte for equal content.

    Its parts get their places once, for all formats: finding these takes longer than drawing.
    """
    content = BytesIO()
    with drawing():
        if engine := figure.get_layout_engine():
            engine.execute(figure)
            figure.set_layout_engine(None)
        figure.savefig(content, format=kind, metadata=_NO_DATE[kind])
    return content.getvalue()


def blank(height: float, study: Study, note: str) -> Figure:
    """A figure of two columns' width; above it the block's name, and at the right what marks and bands mean."""
    figure = Figure(figsize=(WIDTH, height), layout="constrained")
    figure.suptitle(study.title, fontsize=10, color=INK, x=0.01, ha="left", weight="bold")
    top = 1 - 0.055 / height  # where the title begins, an inch being 1 / height
    figure.text(0.99, top, note, fontsize=7.5, color="#666666", ha="right", va="top").set_in_layout(False)
    return figure


def symbol(factor: str, level: str) -> str:
    """GOAL's notation for a level of its axes, in Matplotlib's mathematics; any other level as it is."""
    letter = {"pair weight": "P", "triplet weight": "T"}.get(factor)
    return rf"${letter}^{{\text{{{level}}}}}$" if letter else level


def line_styles(names: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Colour, dashes and mark by name; names differ in more than colour, and up to 49 names in colour or mark."""
    marks = [MARKS[(place + place // len(COLOURS)) % len(MARKS)] for place in range(len(names))]
    looks = zip(names, cycle(COLOURS), cycle(DASHES), marks, strict=False)
    return {name: {"color": colour, "linestyle": dash, "marker": mark} for name, colour, dash, mark in looks}


PLAIN: dict[str, Any] = {"linestyle": "none", "markersize": 6}
"""A mark without a line."""


def point_looks(names: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Colours by pair weight and marks by triplet weight for GOAL's cells; else every name has its own."""
    if not set(names) <= set(GOAL):
        return line_styles(names)
    colours, marks = dict(zip(PAIR_WEIGHTS, COLOURS, strict=False)), dict(zip(TRIPLET_WEIGHTS, MARKS, strict=False))
    split = {name: name.split("_") for name in names}
    return {name: {"color": colours[pair], "marker": marks[triplet]} for name, (pair, triplet) in split.items()}


Corner = Literal["outside lower center", "outside lower right"]


def legend_below(
    figure: Figure,
    handles: Iterable[Artist],
    labels: Iterable[str],
    most: int,
    *,
    loc: Corner = "outside lower center",
    **look: Any,
) -> None:
    """Draw a legend below the axes, in at most so many columns, or as many as the figure is wide enough for."""
    handles, labels = list(handles), list(labels)
    for columns in range(min(len(handles), most), 0, -1):
        legend = figure.legend(handles, labels, loc=loc, ncols=columns, **look)
        if legend.get_window_extent().width <= figure.bbox.width or columns == 1:
            return
        legend.remove()


def point_legend(figure: Figure, names: Sequence[str], looks: Mapping[str, Mapping[str, Any]]) -> None:
    """Draw a legend with the meaning of colours and marks for GOAL's cells; else with the names."""
    handles = _point_handles(names, looks)
    legend_below(figure, handles, [str(handle.get_label()) for handle in handles], most=8, handlelength=1.2)


def _point_handles(names: Sequence[str], looks: Mapping[str, Mapping[str, Any]]) -> list[Line2D]:
    if not set(names) <= set(GOAL):
        return [Line2D([], [], label=name, **{**looks[name], **PLAIN}) for name in names]
    colours = {name.split("_")[0]: looks[name]["color"] for name in names}
    marks = {name.split("_")[1]: looks[name]["marker"] for name in names}
    return [
        *(Line2D([], [], label=symbol("pair weight", pair), color=colours[pair], marker="o", **PLAIN)
          for pair in PAIR_WEIGHTS if pair in colours),
        *(Line2D([], [], label=symbol("triplet weight", triplet), color=INK, marker=marks[triplet],
                 fillstyle="none", **PLAIN)
          for triplet in TRIPLET_WEIGHTS if triplet in marks),
    ]  # fmt: skip


def panels(study: Study) -> dict[str, dict[str, str]]:
    """The lines of panels that stand side by side: by the panel's title, the cell's name by the line's label.

    GOAL's matrix has a panel for every triplet weight with a line for every pair weight; other grids have one panel.
    """
    names = list(study.part.cells)
    if not set(names) <= set(CELLS):
        return {"": {name: name for name in names}}
    return {
        symbol("triplet weight", triplet): {
            symbol("pair weight", pair): f"{pair}_{triplet}" for pair in PAIR_WEIGHTS if f"{pair}_{triplet}" in names
        }
        for triplet in TRIPLET_WEIGHTS
        if any(name.endswith(f"_{triplet}") for name in names)
    }


def over_epochs(
    study: Study,
    quantities: Mapping[str, str],
    row_height: float,
    reference: PrintedCurve | None = None,
    below: Callable[[Axes, Study, Mapping[str, str], Mapping[str, dict[str, Any]]], None] | None = None,
    along: str = "epoch",
) -> Figure | None:
    """Curves over epochs: a row a logged quantity, a column a panel; None where no quantity was logged.

    Lines are means over seeds, bands ± one sample standard deviation.

    Args:
        quantities: label by quantity.
        row_height: of a quantity, in inches.
        reference: a paper's curve, drawn thin in the row of its quantity, for the objectives of the same names.
        below: draws a further row over the same epochs, into the axes of a panel with these lines and looks.
        along: what the histories count.
    """
    trials = [trial for name in study.part.cells for trial in study.trials(name)]
    logged = {quantity for trial in trials for quantity in study.histories[trial]}
    rows = {quantity: title for quantity, title in quantities.items() if quantity in logged}
    if not rows:
        return None
    height = row_height * (len(rows) + bool(below)) + 0.9
    figure = blank(height, study, "mean and ± one sample standard deviation over seeds")
    columns = panels(study)
    styles = line_styles(list(dict.fromkeys(label for lines in columns.values() for label in lines)))
    every = figure.subplots(len(rows) + bool(below), len(columns), sharex=True, sharey="row", squeeze=False)
    handles = dict[str, Line2D]()
    for line, (quantity, title) in zip(every[: len(rows)], rows.items(), strict=True):
        for axes, lines in zip(line, columns.values(), strict=True):
            handles |= _panel(axes, study, quantity, lines, styles, reference)
        line[0].set_ylabel(title)
        _spread_out(line[0])
    if below:
        for axes, lines in zip(every[-1], columns.values(), strict=True):
            below(axes, study, lines, styles)
            axes.grid(visible=True, axis="x")
        every[-1][0].set_ylabel("until 95 % of\nthe final rsum")
    for axes, heading in zip(every[0], columns, strict=True):
        axes.set_title(heading, fontsize=11)
    for axes in every[-1]:
        axes.set_xlabel(along)
        axes.xaxis.get_major_locator().set_params(integer=True)
    figure.align_ylabels()
    legend_below(figure, handles.values(), handles, most=5)
    return figure


def _panel(
    axes: Axes,
    study: Study,
    quantity: str,
    lines: Mapping[str, str],
    styles: Mapping[str, dict[str, Any]],
    reference: PrintedCurve | None,
) -> dict[str, Line2D]:
    """Draw the curves of a quantity in a panel, with those that a paper printed; returns them by label."""
    handles = dict[str, Line2D]()
    for label, name in lines.items():
        if study.trials(name):
            handles[label] = curve(axes, study, name, quantity, styles[label])
        if reference and reference.quantity == quantity and name in reference.lines:
            look = {**styles[label], "linestyle": "none", "markersize": 3, "fillstyle": "none"}
            (handles[f"{label}, {reference.source}"],) = axes.plot(reference.epochs, reference.lines[name], **look)
    axes.grid(visible=True)
    return handles


WIDE = 30
"""Positive values of a row that differ by a larger factor stand on a logarithmic axis.

So do values of both signs of which the largest is by this factor larger than the median; near 0 their axis is linear.
"""


def _spread_out(axes: Axes) -> None:
    """Make the vertical axis of a row logarithmic where its lines would lie on one another."""
    heights = [value for other in axes.get_shared_y_axes().get_siblings(axes) for line in other.lines
             for value in np.asarray(line.get_ydata(), dtype=float)]  # fmt: skip
    sizes = np.abs(heights)
    if heights and min(heights) > 0 and max(heights) > WIDE * min(heights):
        axes.set_yscale("log")
    elif heights and min(heights) <= 0 and sizes.max() > WIDE * (middle := float(np.median(sizes))) > 0:
        axes.set_yscale("symlog", linthresh=10.0 ** np.ceil(np.log10(middle)), linscale=0.6)


def curve(axes: Axes, study: Study, name: str, quantity: str, style: dict[str, Any]) -> Line2D:
    """Draw the mean of a cell's trials with its band; returns the line."""
    epochs, values = study.curve(name, quantity)
    look = {**style, "markersize": 3.2, "linewidth": 1.4, "markevery": max(1, len(epochs) // 8)}
    mean = values.mean(axis=0)
    if len(values) > 1:
        std = values.std(axis=0, ddof=1)
        axes.fill_between(epochs, mean - std, mean + std, color=style["color"], alpha=0.12, linewidth=0)
    return axes.plot(epochs, mean, **look)[0]
