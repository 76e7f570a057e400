"""GOAL's matrix (rows: pair weights, columns: triplet weights): its metrics, and which cells were known before."""

from collections.abc import Sequence

from goalgrid.grid.expansion import Cell
from goalgrid.grid.objectives.goal_matrix import GOAL_COLUMNS, GOAL_ROWS, KNOWN_AS, PAIR_WEIGHTS, TRIPLET_WEIGHTS
from goalgrid.results.layouts.captions import COLUMN_NAMES, Layout, TableSource, blocks_of, by_direction, caption, entry
from goalgrid.results.records.scores import Scores, TableValue, Word
from goalgrid.results.tables import Block, Group, Label, Row, Table, TableEntry
from goalgrid.results.tables.legend import Legend, Sentence
from goalgrid.results.tables.notation import weight

CAPTION = (
    "Objectives of GOAL's matrix that were known before GOAL, by triplet weight and pair weight; the others are new."
)


def goal(cells: Sequence[Cell], scores: TableSource, asked: Sequence[str]) -> Table:
    """Lay out GOAL Tables 3 to 5: one metric, both directions side by side, a block per recipe.

    Weights of GOAL that the grid does not use keep their row or column.
    """
    (metric,) = asked
    titles = by_direction(metric)
    pairs, triplets = matrix_of(cells)
    groups = tuple(_triplets(title, metric, triplets) for metric, title in titles.items())
    columns = [(metric, triplet) for metric in titles for triplet in triplets]
    blocks = blocks_of(cells, lambda block: (_row(pair, columns, block, scores) for pair in pairs))
    return Table("goal", Label(""), groups, blocks, caption(cells, scores, COLUMN_NAMES[metric]))


def matrix_of(cells: Sequence[Cell]) -> tuple[list[str], list[str]]:
    """Return the pair weights and the triplet weights: all of GOAL's, and further weights that a cell uses."""
    weights = {(place, name) for cell in cells for place, name in enumerate(cell.objective.split("_"))}
    pairs = [name for name in PAIR_WEIGHTS if name in GOAL_ROWS or (0, name) in weights]
    return pairs, [name for name in TRIPLET_WEIGHTS if name in GOAL_COLUMNS or (1, name) in weights]


def _triplets(title: Label, metric: str, triplets: Sequence[str]) -> Group:
    keys = tuple({"metric": metric, "triplet": name} for name in triplets)
    return Group(title, tuple(symbol("T", name) for name in triplets), keys=keys)


def symbol(letter: str, name: str) -> Label:
    """Return a weight in GOAL's notation, e.g. `P^con`."""
    return Label(f"{letter}^{name}", f"${weight(letter, name)}$")


def _row(pair: str, columns: Sequence[tuple[str, str]], block: dict[str, Cell], scores: TableSource) -> Row:
    places = [(block.get(f"{pair}_{triplet}"), metric, triplet) for metric, triplet in columns]
    entries = (
        entry(cell, scores, metric, pair_weight=pair, triplet_weight=triplet) if cell else None
        for cell, metric, triplet in places
    )
    return Row(symbol("P", pair), tuple(entries), keys={"pair": pair})


def known(cells: Sequence[Cell], scores: TableSource, asked: Sequence[str]) -> Table:
    """Lay out GOAL Table 1: which cells of the matrix were known before; only cells of the grid are shown."""
    values: dict[str, TableValue] = {cell.objective: Word(KNOWN_AS.get(cell.objective, "new")) for cell in cells}
    if not isinstance(scores, Scores) and "known" in scores.metrics:
        values = {cell.objective: scores.of(cell, "known") for cell in cells}
    entries = {name: TableEntry(value, {"objective": name, "metric": "known"}) for name, value in values.items()}
    pairs, triplets = matrix_of(cells)
    rows = tuple(
        Row(symbol("P", pair), tuple(entries.get(f"{pair}_{name}") for name in triplets), keys={"pair": pair})
        for pair in pairs
    )
    text = Legend(Sentence(CAPTION)) if isinstance(scores, Scores) else scores.caption
    group = _triplets(Label("triplet weight"), "known", triplets)
    return Table("known", Label("pair weight"), (group,), (Block("Known objectives", rows),), text)


LAYOUTS = {
    "goal": Layout(goal, of_the_matrix=True, metrics=1), "known": Layout(known, of_the_matrix=True, metrics=0)
}  # fmt: skip
