"""One row an objective, the recalls of both directions and their sum as columns: the layout of method comparisons."""

from collections.abc import Sequence

from grid.expansion import Cell
from results.layouts.captions import BlockKey, block_title, blocks_of, caption
from results.layouts.goal import DIRECTIONS
from results.scores import Scores
from results.table import Block, Entry, Group, Label, Row, Table

RECALLS = ("r1", "r5", "r10")


def layout(cells: Sequence[Cell], scores: Scores, metric: str) -> Table:
    """All recalls of all objectives; it shows every metric, so `metric` chooses nothing."""
    columns = tuple(Label(f"R@{recall[1:]}") for recall in RECALLS)
    groups = [Group(title, columns, comparable=False) for title in DIRECTIONS.values()]
    blocks = tuple(
        Block(block_title(key), tuple(_row(key, cell, scores) for cell in block.values()))
        for key, block in blocks_of(cells).items()
    )
    summary = caption(cells, scores, "Recall (%) and rsum, the sum of the six recalls,")
    return Table("listing", Label("objective"), (*groups, Group(Label(""), (Label("rsum"),))), blocks, summary)


def _row(key: BlockKey, cell: Cell, scores: Scores) -> Row:
    metrics = [*(f"{direction}_{recall}" for direction in DIRECTIONS for recall in RECALLS), "rsum"]
    axes = {"dataset": key[0], "protocol": scores.protocol_of(cell), "recipe": key[1]}
    axes |= {name: str(value) for name, value in key[2]}
    entries = (
        Entry(scores.of(cell, name), tuple({**axes, "objective": cell.objective, "metric": name}.items()))
        for name in metrics
    )
    return Row(Label(cell.objective), tuple(entries))
