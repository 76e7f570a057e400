"""GOAL Tables 3 to 5: rows pair weights, columns triplet weights, both directions side by side, a block a recipe."""

from collections.abc import Sequence

from grid.expansion import Cell
from grid.objectives import PAIR_WEIGHTS, TRIPLET_WEIGHTS
from results.layouts.captions import METRIC_NAMES, BlockKey, block_title, blocks_of, caption
from results.scores import Scores
from results.table import Block, Entry, Group, Label, Row, Table

DIRECTIONS = {
    "i2t": Label("Image → Text", r"Image $\rightarrow$ Text"),
    "t2i": Label("Text → Image", r"Text $\rightarrow$ Image"),
}


def layout(cells: Sequence[Cell], scores: Scores, metric: str) -> Table:
    """The 5 x 3 matrix of one metric; pairs and triplets that the grid lacks keep their row and column."""
    columns = tuple(_symbol("T", name) for name in TRIPLET_WEIGHTS)
    titles = {"": Label("rsum")} if metric == "rsum" else DIRECTIONS
    groups = tuple(Group(title, columns, lowest=metric == "medr") for title in titles.values())
    metrics = [f"{direction}_{metric}" if direction else metric for direction in titles]
    blocks = tuple(
        Block(block_title(key), tuple(_row(pair, key, block, scores, metrics) for pair in PAIR_WEIGHTS))
        for key, block in blocks_of(cells).items()
    )
    return Table("goal", Label(""), groups, blocks, caption(cells, scores, METRIC_NAMES[metric]))


def _row(pair: str, key: BlockKey, block: dict[str, Cell], scores: Scores, metrics: list[str]) -> Row:
    names = [(f"{pair}_{triplet}", metric) for metric in metrics for triplet in TRIPLET_WEIGHTS]
    entries = (_entry(key, block.get(objective), scores, metric) for objective, metric in names)
    return Row(_symbol("P", pair), tuple(entries))


def _symbol(letter: str, name: str) -> Label:
    """GOAL's notation; in mathematics a hyphen must be told from a minus."""
    upright = name.replace("-", r"\mathchar`-")
    return Label(f"{letter}^{name}", rf"${letter}^{{\mathrm{{{upright}}}}}$")


def _entry(key: BlockKey, cell: Cell | None, scores: Scores, metric: str) -> Entry | None:
    if cell is None:
        return None
    pair, triplet = cell.objective.split("_")
    axes = {"dataset": key[0], "protocol": scores.protocol_of(cell), "recipe": key[1]}
    axes |= {name: str(value) for name, value in key[2]}
    names = {"objective": cell.objective, "pair_weight": pair, "triplet_weight": triplet, "metric": metric}
    return Entry(scores.of(cell, metric), tuple({**axes, **names}.items()))
