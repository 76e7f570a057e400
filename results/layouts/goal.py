"""GOAL Tables 3 to 5: rows pair weights, columns triplet weights, both directions side by side, a block a recipe."""

from collections.abc import Sequence

from goalgrid.grid.expansion import Cell
from goalgrid.grid.objectives.goal_matrix import GOAL_COLUMNS, GOAL_ROWS, PAIR_WEIGHTS, TRIPLET_WEIGHTS
from goalgrid.results.layouts.captions import COLUMN_NAMES, Layout, TableSource, blocks_of, by_direction, caption, entry
from goalgrid.results.renderers.latex import weight
from goalgrid.results.tables.table import Group, Label, Row, Table


def layout(cells: Sequence[Cell], scores: TableSource, asked: Sequence[str]) -> Table:
    """The matrix of one metric; GOAL's pairs and triplets that the grid lacks keep their row and column."""
    (metric,) = asked
    titles = by_direction(metric)
    pairs, triplets = matrix_of(cells)
    groups = tuple(Group(title, tuple(symbol("T", name) for name in triplets)) for title in titles.values())
    columns = [(metric, triplet) for metric in titles for triplet in triplets]
    blocks = blocks_of(cells, lambda block: (_row(pair, columns, block, scores) for pair in pairs))
    return Table("goal", Label(""), groups, blocks, caption(cells, scores, COLUMN_NAMES[metric]))


def matrix_of(cells: Sequence[Cell]) -> tuple[list[str], list[str]]:
    """The pair weights and the triplet weights: all of GOAL's, and added weights that a cell has."""
    weights = {(place, name) for cell in cells for place, name in enumerate(cell.objective.split("_"))}
    pairs = [name for name in PAIR_WEIGHTS if name in GOAL_ROWS or (0, name) in weights]
    return pairs, [name for name in TRIPLET_WEIGHTS if name in GOAL_COLUMNS or (1, name) in weights]


def symbol(letter: str, name: str) -> Label:
    """GOAL's notation."""
    return Label(f"{letter}^{name}", f"${weight(letter, name)}$")


def _row(pair: str, columns: Sequence[tuple[str, str]], block: dict[str, Cell], scores: TableSource) -> Row:
    places = [(block.get(f"{pair}_{triplet}"), metric, triplet) for metric, triplet in columns]
    entries = (
        entry(cell, scores, metric, pair_weight=pair, triplet_weight=triplet) if cell else None
        for cell, metric, triplet in places
    )
    return Row(symbol("P", pair), tuple(entries))


LAYOUT = Layout(layout, of_the_matrix=True, metrics=1)
