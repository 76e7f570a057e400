"""Curves whose numbers a paper prints: a TOML file a figure; the folder is the list."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from goalgrid.grid.catalog import toml, toml_names
from goalgrid.grid.errors import check_known


@dataclass(frozen=True)
class PrintedCurve:
    """Values over epochs, a line an objective; its source is a paper's figure."""

    source: str
    quantity: str
    """Its name in the history of a trial."""
    epochs: Sequence[int]
    lines: Mapping[str, Sequence[float]]


def printed_curve(name: str) -> PrintedCurve:
    """A curve by name, e.g. `2ad-figureA1`; a UserError if none has this name."""
    check_known("reference curve", name, toml_names(__name__))
    return PrintedCurve(**toml(__name__, name))
