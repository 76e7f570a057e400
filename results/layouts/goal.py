"""GOAL Tables 3 to 5: rows pair weights, columns triplet weights, both directions side by side, a block a recipe."""

from collections.abc import Sequence

from goalgrid.grid.expansion import Cell
from goalgrid.grid.objectives.goal_matrix import GOAL_COLUMNS, GOAL_ROWS, PAIR_WEIGHTS, TRIPLET_WEIGHTS
from goalgrid.results.layouts.captions import COLUMN_NAMES, Layout, TableSource, blocks_of, caption, entry
from goalgrid.results.layouts.columns import by_direction
from goalgrid.results.renderers.latex import weight
from goalgrid.results.tables.table import Group, Label, Row, Table, TableEntry


def layout(cells: Sequence[Cell], scores: TableSource, asked: Sequence[str]) -> Table:
    """The matrix of one metric; GOAL's pairs and triplets that the grid lacks keep their row and column."""
    (metric,) = asked
    titles = by_direction(metric)
    pairs, triplets = matrix_of(cells)
    groups = tuple(Group(title, triplet_columns(triplets)) for title in titles.values())
    metrics = list(titles)
    blocks = blocks_of(cells, lambda block: (_row(pair, triplets, block, scores, metrics) for pair in pairs))
    return Table("goal", Label(""), groups, blocks, caption(cells, scores, COLUMN_NAMES[metric]))


def matrix_of(cells: Sequence[Cell]) -> tuple[list[str], list[str]]:
    """The pair weights and the triplet weights: all of GOAL's, and added weights that a cell has."""
    weights = {(place, name) for cell in cells for place, name in enumerate(cell.objective.split("_"))}
    pairs = [name for name in PAIR_WEIGHTS if name in GOAL_ROWS or (0, name) in weights]
    return pairs, [name for name in TRIPLET_WEIGHTS if name in GOAL_COLUMNS or (1, name) in weights]


def triplet_columns(triplets: Sequence[str]) -> tuple[Label, ...]:
    """T^con, T^nca, T^cir."""
    return tuple(symbol("T", name) for name in triplets)


def symbol(letter: str, name: str) -> Label:
    """GOAL's notation."""
    return Label(f"{letter}^{name}", f"${weight(letter, name)}$")


def _row(pair: str, triplets: Sequence[str], block: dict[str, Cell], scores: TableSource, metrics: list[str]) -> Row:
    names = [(f"{pair}_{triplet}", metric) for metric in metrics for triplet in triplets]
    return Row(symbol("P", pair), tuple(_entry(block.get(objective), scores, metric) for objective, metric in names))


def _entry(cell: Cell | None, scores: TableSource, metric: str) -> TableEntry | None:
    if cell is None:
        return None
    pair, triplet = cell.objective.split("_")
    return entry(cell, scores, metric, pair_weight=pair, triplet_weight=triplet)


LAYOUT = Layout(layout, of_the_matrix=True, metrics=1)
