"""Marks in a table for the entries that cannot be told from the best, and their explanation in the caption."""

from dataclasses import replace

from results.analysis.observations import Observations
from results.records.scores import Score
from results.statistics.significance import LEVEL
from results.tables.table import LIKE_BEST, Block, Place, Table


def marked(table: Table) -> Table:
    """The table with a mark at every entry that Tukey's test cannot tell from the best of its contest."""
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
    """Places that cannot be told from the best, places that were compared, and notes for the caption."""
    alike: set[Place] = set()
    compared: set[Place] = set()
    notes: dict[str, None] = {}
    for contest in table.contests(block):
        lowest = next(iter(contest.values())).lowest
        scores: dict[str, tuple[Place, Score]] = {
            f"{row}, {column}": ((row, column), entry.score)
            for (row, column), entry in contest.items()
            if isinstance(entry.score, Score)
        }
        observations = Observations.shared({name: score for name, (_, score) in scores.items()})
        if len(observations.seeds) < 2:
            notes["Fewer than two seeds are shared by the cells of a block, so nothing is marked there."] = None
            continue
        if any("left out" in note for note in observations.notes):
            notes["Marks rest on the seeds that all cells of a block share."] = None
        best = observations.names[observations.best(lowest=lowest)]
        compared |= {scores[name][0] for name in observations.names}
        alike |= {scores[name][0] for name in observations.like_best(lowest=lowest) if name != best}
    return alike, compared, notes
