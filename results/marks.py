"""Marks: which entries of a table cannot be told from the best, as the entries and the caption say it."""

from dataclasses import replace

from results.observations import Observations
from results.scores import Score
from results.statistics import LEVEL
from results.table import LIKE_BEST, Block, Place, Table


def marked(table: Table) -> Table:
    """The table with its entries marked that Tukey's test cannot tell from the best with which they compete."""
    blocks, notes = [], dict[str, None]()
    for block in table.blocks:
        alike, compared, noted = _alike(table, block)
        notes |= noted
        rows = [
            replace(row, entries=tuple(
                replace(entry, like_best=(number, column) in alike) if entry and (number, column) in compared else entry
                for column, entry in enumerate(row.entries)
            ))
            for number, row in enumerate(block.rows)
        ]  # fmt: skip
        blocks.append(replace(block, rows=tuple(rows)))
    return replace(table, blocks=tuple(blocks), caption=" ".join([table.caption, _rule(), *notes]))


def _rule() -> str:
    return (
        f"{LIKE_BEST}: not distinguishable from the best at {100 * LEVEL:.0f} % "
        "(Tukey's test over all pairs of cells that compete, seeds as blocks)."
    )


def _alike(table: Table, block: Block) -> tuple[set[Place], set[Place], dict[str, None]]:
    """Places that cannot be told from the best, places that could be compared, and what a reader must know."""
    alike: set[Place] = set()
    compared: set[Place] = set()
    notes: dict[str, None] = {}
    for contest in table.contests(block):
        lowest = next(iter(contest.values())).lowest
        field: dict[str, tuple[Place, Score]] = {
            f"{row}, {column}": ((row, column), entry.score)
            for (row, column), entry in contest.items()
            if isinstance(entry.score, Score)
        }
        seen = Observations.shared({name: score for name, (_, score) in field.items()})
        if len(seen.seeds) < 2:
            notes["Fewer than two seeds are shared by the cells of a block, so nothing is marked there."] = None
            continue
        if any("left out" in note for note in seen.notes):
            notes["Marks rest on the seeds that all cells of a block share."] = None
        best = seen.names[seen.best(lowest=lowest)]
        compared |= {field[name][0] for name in seen.names}
        alike |= {field[name][0] for name in seen.like_best(lowest=lowest) if name != best}
    return alike, compared, notes
