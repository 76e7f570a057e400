"""One row an objective, the recalls of both directions and their sum as columns; a block a recipe on a data set."""

from collections.abc import Sequence

from goalgrid.grid.expansion import Cell
from goalgrid.results.layouts.captions import Layout, TableSource, beside, blocks_of, caption, entry, recalls
from goalgrid.results.tables.table import Label, Row, Table

WHAT = "Recall (%) and rsum, the sum of the six recalls,"


def layout(cells: Sequence[Cell], scores: TableSource, asked: Sequence[str]) -> Table:
    groups, metrics = recalls(scores.metrics, asked)
    blocks = blocks_of(cells, lambda block: (row(cell, cell.objective, scores, metrics) for cell in block.values()))
    return Table(
        "listing", Label("objective"), tuple(groups), blocks, caption(cells, scores, beside(WHAT, asked, scores))
    )


def row(cell: Cell, name: str, scores: TableSource, metrics: list[str]) -> Row:
    """The metrics of a cell; without a name, it is labelled as one method among others."""
    return Row(Label(name or scores.label(cell)), tuple(entry(cell, scores, metric) for metric in metrics))


LAYOUT = Layout(layout)
