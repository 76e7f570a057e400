"""How figures look: one palette, the papers' notation, and files equal to the byte."""

from collections.abc import Iterable, Mapping, Sequence
from io import BytesIO
from itertools import cycle
from typing import Any

from matplotlib import rc_context
from matplotlib.artist import Artist
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from goalgrid.grid.objectives.goal_matrix import GOAL, PAIR_WEIGHTS, TRIPLET_WEIGHTS
from goalgrid.grid.palette import COLOURS, DASHES, FAINT, INK, MARKS
from goalgrid.results.figures.study import Study

WIDTH = 7.2

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


def point_looks(names: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Colours by pair weight and marks by triplet weight for GOAL's cells; else every name has its own."""
    if not set(names) <= set(GOAL):
        return line_styles(names)
    colours, marks = dict(zip(PAIR_WEIGHTS, COLOURS, strict=False)), dict(zip(TRIPLET_WEIGHTS, MARKS, strict=False))
    split = {name: name.split("_") for name in names}
    return {name: {"color": colours[pair], "marker": marks[triplet]} for name, (pair, triplet) in split.items()}


def legend_below(figure: Figure, handles: Iterable[Artist], labels: Iterable[str], most: int, **look: Any) -> None:
    """Draw a legend below the axes, in at most so many columns, or as many as the figure is wide enough for."""
    handles, labels = list(handles), list(labels)
    for columns in range(min(len(handles), most), 0, -1):
        legend = figure.legend(handles, labels, ncols=columns, **{"loc": "outside lower center", **look})
        if legend.get_window_extent().width <= figure.bbox.width or columns == 1:
            return
        legend.remove()


def point_legend(figure: Figure, names: Sequence[str], looks: Mapping[str, Mapping[str, Any]]) -> None:
    """Draw a legend with the meaning of colours and marks for GOAL's cells; else with the names."""
    handles = [Line2D([], [], label=name, **{**looks[name], **PLAIN}) for name in names]
    if set(names) <= set(GOAL):
        colours = {name.split("_")[0]: looks[name]["color"] for name in names}
        marks = {name.split("_")[1]: looks[name]["marker"] for name in names}
        handles = [
            *(Line2D([], [], label=symbol("pair weight", pair), color=colours[pair], marker="o", **PLAIN)
              for pair in PAIR_WEIGHTS if pair in colours),
            *(Line2D([], [], label=symbol("triplet weight", triplet), color=INK, marker=marks[triplet],
                     fillstyle="none", **PLAIN) for triplet in TRIPLET_WEIGHTS if triplet in marks),
        ]  # fmt: skip
    legend_below(figure, handles, [str(handle.get_label()) for handle in handles], most=8, handlelength=1.2)
