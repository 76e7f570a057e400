"""Curves whose numbers a paper prints: one TOML file per figure; the folder is the list."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from goalgrid.grid.catalog import toml, toml_names
from goalgrid.grid.errors import check_known
from goalgrid.grid.expansion import Cell


@dataclass(frozen=True)
class PrintedCurve:
    """Values over epochs, a line an objective; its source is a paper's figure, with what a legend must say of it."""

    source: str
    quantity: str
    """Its name in the history of a trial."""
    dataset: str
    epochs: Sequence[int]
    lines: Mapping[str, Sequence[float]]

    def of(self, cells: Mapping[str, Cell]) -> dict[str, Sequence[float]]:
        """Return the lines of the cells, by name, that have its data set and one of its objectives."""
        return {n: self.lines[n] for n, cell in cells.items() if n in self.lines and cell.dataset == self.dataset}


def printed_curve(name: str) -> PrintedCurve:
    """Read a curve by name, e.g. `2ad-figureA1`; UserError: none has this name."""
    check_known("reference curve", name, toml_names(__name__))
    return PrintedCurve(**toml(__name__, name))
