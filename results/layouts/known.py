"""GOAL Table 1: which cells of the matrix had a name before; cells that the grid lacks are left out."""

from collections.abc import Sequence

from goalgrid.grid.expansion import Cell
from goalgrid.grid.objectives.goal_matrix import KNOWN_AS
from goalgrid.results.layouts.captions import Layout, TableSource
from goalgrid.results.layouts.goal import matrix_of, symbol
from goalgrid.results.records.scores import Words
from goalgrid.results.reference.reading import Paper
from goalgrid.results.tables.table import Block, Group, Label, Row, Table, TableEntry

CAPTION = (
    "The objectives of GOAL's matrix that had a name before, by triplet weight and pair weight; the others are new."
)


def layout(cells: Sequence[Cell], scores: TableSource, asked: Sequence[str]) -> Table:
    printed = isinstance(scores, Paper) and "known" in scores.metrics
    names = {c.objective: scores.of(c, "known") if printed else Words(KNOWN_AS.get(c.objective, "new")) for c in cells}
    entries = {name: TableEntry(value, (("objective", name), ("metric", "known"))) for name, value in names.items()}
    pairs, triplets = matrix_of(cells)
    rows = tuple(
        Row(symbol("P", pair), tuple(entries.get(f"{pair}_{triplet}") for triplet in triplets)) for pair in pairs
    )
    caption = scores.caption if isinstance(scores, Paper) else CAPTION
    group = Group(Label("triplet weight"), tuple(symbol("T", name) for name in triplets))
    return Table("known", Label("pair weight"), (group,), (Block("Known objectives", rows),), caption)


LAYOUT = Layout(layout, of_the_matrix=True, metrics=0)
