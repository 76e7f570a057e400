"""Marks in a table for the entries that cannot be told from the best, and their explanation in the caption."""

from dataclasses import replace

from goalgrid.results.analysis.observations import Observations
from goalgrid.results.records.scores import Score
from goalgrid.results.statistics.significance import LEVEL
from goalgrid.results.tables.table import LIKE_BEST, Place, Table, TableEntry


def marked(table: Table) -> Table:
    """The table with a mark at every entry that Tukey's test cannot tell from the best of its contest."""
    blocks, notes = [], dict[str, None]()
    for block in table.blocks:
        marks: dict[Place, bool] = {}
        for contest in table.contests(block):
            alike, note = _marks(contest)
            marks |= alike
            notes |= {note: None} if note else {}
        rows = []
        for number, row in enumerate(block.rows):
            places = ((entry, marks.get((number, column))) for column, entry in enumerate(row.entries))
            entries = tuple(replace(entry, like_best=mark) if entry else None for entry, mark in places)
            rows.append(replace(row, entries=entries))
        blocks.append(replace(block, rows=tuple(rows)))
    rule = (
        f"{LIKE_BEST}: not distinguishable from the best at {100 * LEVEL:.0f} % "
        "(Tukey's test over all pairs of cells that compete, seeds as blocks, one error for all cells)."
    )
    return replace(table, blocks=tuple(blocks), caption=" ".join([table.caption, rule, *notes]))


def _marks(contest: dict[Place, TableEntry]) -> tuple[dict[Place, bool], str]:
    """By place, for the entries that were compared, whether to mark them; and a note for the caption."""
    places = {str(place): place for place in contest}
    scores = {name: contest[place].score for name, place in places.items()}
    measured = {name: score for name, score in scores.items() if isinstance(score, Score)}
    if not measured:
        return {}, ""
    observations = Observations.shared(measured)
    if len(observations.seeds) < 2:
        return {}, "Fewer than two seeds are shared by the cells of a block, so nothing is marked there."
    lowest = next(iter(contest.values())).lowest
    like_best = observations.like_best(lowest=lowest)
    if not like_best:
        return {}, "The cells of a block show no spread over seeds, so nothing is marked there."
    alike = set(like_best) - {observations.names[observations.best(lowest=lowest)]}
    left_out = any("left out" in note for note in observations.notes)
    note = "Marks rest on the seeds that all cells of a block share." if left_out else ""
    return {places[name]: name in alike for name in observations.names}, note
