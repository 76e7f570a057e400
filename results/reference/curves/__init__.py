"""Curves from figures whose numbers a paper prints: one TOML file per figure in this folder."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from goalgrid.grid.catalog import toml, toml_names
from goalgrid.grid.errors import check_known
from goalgrid.grid.expansion import Cell


@dataclass(frozen=True)
class PrintedCurve:
    """Values over epochs from a paper's figure, one line per objective."""

    source: str
    """Paper and figure, with remarks, as shown in a legend."""
    quantity: str
    """Name of the plotted value in a trial's history."""
    dataset: str
    epochs: Sequence[int]
    lines: Mapping[str, Sequence[float]]

    def of(self, cells: Mapping[str, Cell]) -> dict[str, Sequence[float]]:
        """Return the lines for these cells (by objective name) that are on the figure's data set and in the figure."""
        return {n: self.lines[n] for n, cell in cells.items() if n in self.lines and cell.dataset == self.dataset}


def printed_curve(name: str) -> PrintedCurve:
    """Read a curve by name, e.g. `2ad-figureA1`; raises UserError if no curve has this name."""
    check_known("reference curve", name, toml_names(__name__))
    return PrintedCurve(**toml(__name__, name))
