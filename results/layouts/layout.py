"""What a layout is."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from goalgrid.grid.expansion import Cell
from goalgrid.results.layouts.captions import TableSource
from goalgrid.results.tables.table import Table


@dataclass(frozen=True)
class Layout:
    """One way to arrange scores in a table."""

    table: Callable[[Sequence[Cell], TableSource, Sequence[str]], Table]
    """From cells, their values and the metrics that `--metric` asks for."""
    of_the_matrix: bool = False
    """Whether it has no place for objectives that are no cells of GOAL's matrix."""
    metrics: int | None = None
    """How many metrics it shows; None: all recalls, and any others that are asked for."""
