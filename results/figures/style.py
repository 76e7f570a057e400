"""Style of figures: one palette, the papers' notation, and byte-identical files."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from io import BytesIO
from itertools import cycle
from pathlib import Path
from typing import Any

from matplotlib import rc_context, rc_params_from_file
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.collections import QuadMesh
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from goalgrid.grid.errors import UserError, in_short
from goalgrid.grid.objectives.goal_matrix import GOAL, PAIR_WEIGHTS, TRIPLET_WEIGHTS
from goalgrid.grid.palette import COLOURS, DASHES, FAINT, INK, MARKS
from goalgrid.results.figures.study import Study

WIDTH = 7.2
COLUMNS = {1: 3.3, 2: 6.9}
"""Width of one and two columns of a paper, in inches; the CVPR and ACL styles differ by 0.1."""
POINTS = 8.5


@dataclass(frozen=True)
class Sheet:
    """Destination of figures: a page of their own, or columns of a paper (without title and note)."""

    columns: int | None = None
    points: float = POINTS


_OWN_PAGE = Sheet()
_SHEET = ContextVar("sheet", default=_OWN_PAGE)


@contextmanager
def drawn_for(sheet: Sheet) -> Iterator[None]:
    """Draw the figures within the `with` block with the width and font size of this sheet."""
    token = _SHEET.set(sheet)
    try:
        yield
    finally:
        _SHEET.reset(token)


_RC: dict[Any, Any] = {
    **rc_params_from_file(Path(__file__).with_name("goalgrid.mplstyle"), use_default_template=False),
    **dict.fromkeys(("axes.labelcolor", "xtick.color", "ytick.color", "text.color"), INK),
    "axes.edgecolor": FAINT,
}
_PGF = r"\usepackage{amsmath}" + "".join(
    rf"\DeclareUnicodeCharacter{{{ord(sign):04X}}}{{\ensuremath{{{tex}}}}}"
    for sign, tex in {"→": r"\rightarrow", "±": r"\pm", "ρ": r"\rho", "η": r"\eta", "²": "^2"}.items()
)
_RC["pgf.preamble"] = _PGF
"""LaTeX preamble; a paper that includes these PGF files needs it as well."""
_SIZES = [name for name in _RC if name.endswith("size")]
ABOUT: dict[str, dict[str, Any]] = {
    "png": {"metadata": {"Software": "goalgrid"}},
    "pdf": {"metadata": {"CreationDate": None, "Creator": "goalgrid"}},
    "svg": {"metadata": {"Date": None, "Creator": "goalgrid"}},
    "pgf": {},
}
"""Options of `savefig` by format; the metadata name goalgrid but no date, so that files are reproducible."""
FORMATS = tuple(ABOUT)


def check_folder(folder: Path) -> None:
    """Raise a UserError if the output folder looks like an image file name (e.g. `x.png`)."""
    if folder.suffix.removeprefix(".") in FORMATS and not folder.is_dir():
        kind = folder.suffix.removeprefix(".")
        raise UserError(f"--output {folder}: give a folder for the figures, and --format {kind}.")


def drawing() -> Any:
    scale = _SHEET.get().points / POINTS
    return rc_context(_RC | {name: scale * _RC[name] for name in _SIZES})


def encoded(figure: Figure, kind: str) -> bytes:
    """Encode a figure in one of `FORMATS`; identical content gives byte-identical output.

    The layout is computed only once for all formats, since it takes longer than drawing.
    """
    content = BytesIO()
    with drawing():
        if engine := figure.get_layout_engine():
            engine.execute(figure)
            figure.set_layout_engine(None)
        for bar in figure.findobj(QuadMesh) if kind == "pgf" else ():  # colours that other formats hold as a bitmap
            bar.set(rasterized=False, edgecolor="face")
        try:
            figure.savefig(content, format=kind, **ABOUT[kind])
        except Exception as error:  # of no pdflatex, of a package that it lacks, and of photographs
            if kind != "pgf":
                raise
            reason = f"--format pgf cannot contain photographs, and needs pdflatex to measure text: {_reason(error)}"
            raise UserError(reason) from error
    return b"% drawn by goalgrid\n" * (kind == "pgf") + content.getvalue()


def _reason(error: Exception) -> str:
    """Return the first error in pdflatex's output, or another exception's message."""
    printed = str(getattr(error, "latex_output", "")).splitlines()
    return next((line.removeprefix("! ") for line in printed if line.startswith("!")), in_short(error))


def blank(height: float, study: Study, note: str) -> Figure:
    """Create an empty figure; except for papers, with the block's name and a note on marks and bands above."""
    sheet = _SHEET.get()
    width = COLUMNS[sheet.columns] if sheet.columns else WIDTH
    figure = Figure(figsize=(width, height), layout="constrained")
    if sheet.columns:
        return figure
    title = figure.suptitle(study.title, fontsize="large", color=INK, x=0.01, ha="left", weight="bold", wrap=True)
    top = 1 - 0.055 / height  # where the title begins, an inch being 1 / height
    aside = figure.text(0.99, top, note, fontsize="small", color="#666666", ha="right", va="top")
    aside.set_in_layout(False)
    named = title.get_window_extent()
    if named.x1 > aside.get_window_extent().x0:  # the note has a line of its own, for which the title makes room
        aside.set_y(top - named.height / figure.bbox.height)
        title.set_text(f"{study.title}\n")
    return figure


def side_by_side(figure: Figure, count: int, **options: Any) -> list[Axes]:
    """Create axes in a row; in a single column of a paper, stack them in a taller figure."""
    if _SHEET.get().columns != 1:
        return list(figure.subplots(1, count, squeeze=False, **options)[0])
    figure.set_figheight(count * figure.get_figheight())
    return list(figure.subplots(count, 1, squeeze=False)[:, 0])


def symbol(factor: str, level: str) -> str:
    """Return a level of GOAL's axes in mathematical notation for Matplotlib; other levels unchanged."""
    letter = {"pair weight": "P", "triplet weight": "T"}.get(factor)
    return rf"${letter}^{{\text{{{level}}}}}$" if letter else level


def shortened(name: str, most: int = 20) -> str:
    """Shorten a long axis label to its beginning and end."""
    return name if "$" in name or len(name) <= most + 1 else f"{name[: most // 2]}…{name[-most // 2 :]}"


def line_styles(names: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Return colour, dashes and marker for each name; up to 49 names differ in colour or marker."""
    marks = [MARKS[(place + place // len(COLOURS)) % len(MARKS)] for place in range(len(names))]
    looks = zip(names, cycle(COLOURS), cycle(DASHES), marks, strict=False)
    return {name: {"color": colour, "linestyle": dash, "marker": mark} for name, colour, dash, mark in looks}


PLAIN: dict[str, Any] = {"linestyle": "none", "markersize": 6}


def point_looks(names: Sequence[str]) -> dict[str, dict[str, Any]]:
    """For GOAL's cells, return colours by pair weight and markers by triplet weight; else a style per name."""
    if not set(names) <= set(GOAL):
        return line_styles(names)
    colours, marks = dict(zip(PAIR_WEIGHTS, COLOURS, strict=False)), dict(zip(TRIPLET_WEIGHTS, MARKS, strict=False))
    split = {name: name.split("_") for name in names}
    return {name: {"color": colours[pair], "marker": marks[triplet]} for name, (pair, triplet) in split.items()}


def legend_below(figure: Figure, handles: Iterable[Artist], labels: Iterable[str], most: int, **look: Any) -> None:
    """Draw a legend below the axes, in at most `most` columns, or as many as fit the width of the figure.

    In a single column of a paper, the font is smaller and the figure grows by the legend's height. Names wider than the
    figure are shortened.
    """
    handles, labels, width = list(handles), list(labels), figure.bbox.width
    narrow = _SHEET.get().columns == 1
    look = {"loc": "outside lower center", **({"fontsize": "small", "columnspacing": 1} if narrow else {}), **look}
    for columns in range(min(len(handles), most), 0, -1):
        legend = figure.legend(handles, labels, ncols=columns, **look)
        wide = legend.get_window_extent().width
        for text in legend.get_texts() if columns == 1 and wide > width else ():
            text.set_text(shortened(text.get_text(), int(max(map(len, labels)) * width / wide) - 6))  # next to its mark
        room = legend.get_window_extent()
        if columns == 1 or room.width <= width:
            figure.set_figheight(figure.get_figheight() + narrow * room.height / figure.dpi)
            return
        legend.remove()


def point_legend(figure: Figure, names: Sequence[str], looks: Mapping[str, Mapping[str, Any]]) -> None:
    """Draw a legend: for GOAL's cells, the meaning of colours and markers; else the names."""
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
