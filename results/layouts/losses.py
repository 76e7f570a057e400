"""The tables of SelHN, the Unified loss and VSE+2AD: rows model and loss, columns the six recalls and RSUM.

A block is a data set by one protocol, so that all its rows compare.
"""

from collections.abc import Sequence

from goalgrid.grid.expansion import Cell, once
from goalgrid.grid.groups import grouped
from goalgrid.results.layouts.captions import Layout, TableSource, beside, caption, recalls
from goalgrid.results.layouts.listing import WHAT, row
from goalgrid.results.tables.table import Block, Label, Table


def layout(cells: Sequence[Cell], scores: TableSource, asked: Sequence[str]) -> Table:
    groups, metrics = recalls(scores.metrics, asked)
    rows = ((cell, row(cell, "", scores, metrics)) for cell in once(cells))
    sections = grouped(((cell.dataset, scores.section(cell)), of_cell) for cell, of_cell in rows)
    blocks = tuple(Block(f"{dataset}, {section}", tuple(rows)) for (dataset, section), rows in sections.items())
    return Table(
        "losses", Label("model, loss"), tuple(groups), blocks, caption(cells, scores, beside(WHAT, asked, scores))
    )


LAYOUT = Layout(layout)
