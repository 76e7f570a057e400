"""A request to `goalgrid table`: its options, and the command line that is stored in written tables."""

import shlex
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING

from goalgrid.grid.cli_option import option

if TYPE_CHECKING:  # `goalgrid --help` reads the options, and loads no pyarrow
    from goalgrid.grid.expansion import Cell
    from goalgrid.results.layouts.captions import TableSource
    from goalgrid.results.layouts.pivot import Axes
    from goalgrid.results.tables import Table
    from goalgrid.results.tables.latex_style import LatexStyle

PROGRAM = "goalgrid table"


@dataclass(frozen=True)
class TableRequest:
    """The options of `goalgrid table` that decide what a table shows, with their defaults and help texts."""

    grid: str
    """Name or file of a grid; with `reference`, the name of a paper's table; empty with `paper`."""
    layout: str | None = option(
        None, "Layout, e.g. goal, listing or methods (a wrong name lists all); default: the one that suits the grid."
    )
    rows: str | None = option(
        None, "Axes as rows, e.g. objective or pair; include seed to show single seeds.", "AXIS,..."
    )
    columns: str | None = option(None, "Axes as columns, e.g. dataset,metric.", "AXIS,...")
    blocks: str | None = option(None, "Axes as blocks; axes that no option names are added.", "AXIS,...")
    metric: str = option("r1", "r1, r5, r10, medr, rsum, parameters or kpps; some layouts take several: medr,kpps.")
    protocol: str | None = None
    """Value of `--protocol`: a protocol, or a data set that [evaluate] names."""
    paper: str | None = option(
        None, "Instead of GRID: fill a paper's table with results from all grids in the runs folder.", "NAME"
    )
    reference: bool = option(False, "Print a paper's table as published; without GRID, list the available tables.")
    against: str | None = option(None, "paper: show our numbers, the paper's and the differences.")
    marks: bool = option(False, "Mark cells not significantly different from the best; the caption names the test.")
    label: str | None = option(None, "LaTeX only: label for \\ref.")
    caption: str | None = option(None, "LaTeX only: replace the title; the notes below the table are kept.", "TEXT")
    siunitx: bool = option(False, "LaTeX only: align numbers at the decimal point (package siunitx).")
    width: str | None = option(
        None, "LaTeX only: column (half page) or text (full page width); default: the narrowest that fits."
    )
    notes: str = option("plain", "LaTeX only: format of the notes below the table: plain or threeparttable.")
    plain: bool = option(False, "LaTeX only: print only the tabular, without the table environment.")
    only: str = option("", "Only trials that match, e.g. 'objective=*_cir seed=0'.", "FILTER")
    cite: tuple[str, ...] = ()
    """Values of `--cite`, NUMBER=KEY: a reference number in a paper's rows, and its key in your bibliography."""
    set_: tuple[str, ...] = ()
    """Values of `--set`, KEY=VALUE: changes to the grid."""

    @property
    def axes(self) -> "Axes | None":
        """Return the axes of rows, columns and blocks; None if the request names no axis."""
        from goalgrid.results.layouts.pivot import Axes

        named = [tuple(words.split(",")) if words else () for words in (self.rows, self.columns, self.blocks)]
        return Axes(*named) if any(named) else None

    @property
    def command(self) -> str:
        """The command line, without `--format`.

        >>> TableRequest("goal-table3-coco", metric="r5", marks=True).command
        'goalgrid table goal-table3-coco --metric r5 --marks'
        """
        words = [PROGRAM, *([shlex.quote(self.grid)] if self.grid or not self.paper else [])]
        for part in sorted(fields(self)[1:], key=lambda part: part.name not in ("paper", "reference")):
            name, value = f"--{part.name.strip('_').replace('_', '-')}", getattr(self, part.name)
            values = value if isinstance(value, tuple) else (value,) if value != part.default else ()
            words += [word for item in values for word in ([name] if item is True else [name, shlex.quote(item)])]
        return " ".join(words)

    @property
    def of_latex(self) -> list[str]:
        """The given options that only apply to LaTeX."""
        default = TableRequest("")
        names = ("label", "caption", "siunitx", "width", "notes", "plain", "cite")
        return [f"--{name}" for name in names if getattr(self, name) != getattr(default, name)]

    @property
    def latex(self) -> "LatexStyle":
        """Style of the table in LaTeX; raises UserError if an option is invalid."""
        from goalgrid.results.tables.latex_style import LatexStyle

        return LatexStyle.of(
            label=self.label, caption=self.caption, siunitx=self.siunitx, width=self.width, notes=self.notes,
            plain=self.plain, cite=self.cite,
        )  # fmt: skip

    def draw(self, cells: "Sequence[Cell]", source: "TableSource") -> "Table":
        """Lay out the table of these cells; raise UserError if the options conflict or do not fit the cells."""
        from goalgrid.results.layouts import arrange

        table = arrange(cells, source, layout=self.layout, metric=self.metric, against=self.against, axes=self.axes)
        table = replace(table, command=self.command, latex=self.latex)
        if self.marks:
            from goalgrid.results.analysis.observations import marked  # imports scipy, which few tables need

            table = marked(table)
        return table
