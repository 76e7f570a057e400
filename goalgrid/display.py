"""Results returned by the Python interface: text, tables, effects and figures that notebooks display."""

import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from goalgrid.grid.errors import UserError, check_known, user_path
from goalgrid.grid.messages import plain
from goalgrid.grid.store.output_files import write_output

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

    from goalgrid.grid.expansion import Cell
    from goalgrid.results.analysis.block_analysis import Analysis
    from goalgrid.results.tables import Table


@dataclass(frozen=True, repr=False)
class TextOutput:
    """Lines for a reader, and their content as data.

    Args:
        data: the document that `--json` of the corresponding verb prints.
    """

    text: str
    data: Mapping[str, Any]

    def __repr__(self) -> str:
        return plain(self.text)

    def _repr_html_(self) -> str:
        return f"<pre>{escape(plain(self.text))}</pre>"


@dataclass(frozen=True, repr=False)
class TableOutput:
    """A table of scores."""

    table: "Table"

    def text(self, kind: str = "markdown") -> str:
        """Return the table as markdown, latex, csv or html; raise UserError for any other format."""
        from goalgrid.results import renderers

        check_known("format", kind, renderers.TEXT)
        return renderers.text(self.table, kind)

    def to_pandas(self) -> "pd.DataFrame":
        """Return one row per entry: its axes, metric, n, mean, std and the ids of its trials, unrounded."""
        from goalgrid.results.renderers import parquet

        return parquet.tidy(self.table).to_pandas()

    def __repr__(self) -> str:
        from goalgrid.results.renderers import terminal

        return plain(terminal.text(self.table, width=160).rstrip())

    def _repr_html_(self) -> str:
        from goalgrid.results.pages import page

        return page("fragment.html", table=self.table)


@dataclass(frozen=True, repr=False)
class EffectsOutput:
    """Main effects and interactions: one analysis per block and metric."""

    analyses: "Sequence[Analysis]"
    cells: "Sequence[Cell]"

    def text(self, kind: str = "terminal") -> str:
        """Return the analyses as terminal, markdown, latex or csv; raise UserError for any other format."""
        from goalgrid.results.analysis import effects_text

        check_known("format", kind, effects_text.FORMATS)
        return effects_text.write_out(self.analyses, self.cells, kind)

    def to_pandas(self) -> "pd.DataFrame":
        """Return one row per number, unrounded: block, metric, part of the analysis, name, quantity and value."""
        import pandas as pd

        return pd.read_csv(io.StringIO(self.text("csv")))

    def __repr__(self) -> str:
        return plain(self.text().rstrip())

    def _repr_markdown_(self) -> str:
        return self.text("markdown")


@dataclass(frozen=True, repr=False)
class FigureOutput:
    """A figure of one block of the grid; `figure` is a Matplotlib Figure."""

    kind: str
    title: str
    figure: "Figure"

    def save(self, path: str | Path) -> Path:
        """Write the figure in the format of the path's suffix; raise UserError for an unknown suffix or a full disk."""
        from goalgrid.results.figures import FORMATS, encoded

        target = user_path(path)
        ending = target.suffix.removeprefix(".")
        if ending not in FORMATS:
            raise UserError(
                f"cannot write a figure to {target}: the name must end in {', '.join(f'.{name}' for name in FORMATS)}."
            )
        write_output(target, encoded(self.figure, ending))
        return target

    def __repr__(self) -> str:
        return f"figure {self.kind!r} of {self.title}"

    def _repr_png_(self) -> bytes:
        from goalgrid.results.figures import encoded

        return encoded(self.figure, "png")
