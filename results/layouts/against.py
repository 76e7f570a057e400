"""A grid beside the papers: for each cell ours, theirs, and the difference with its standard error."""

from collections.abc import Mapping, Sequence

from goalgrid.grid.errors import UserError
from goalgrid.grid.expansion import Cell
from goalgrid.results.layouts.captions import METRIC_NAMES, blocks_of, caption
from goalgrid.results.layouts.columns import by_direction
from goalgrid.results.records.scores import Scores
from goalgrid.results.reference.matching import Difference, Match, changes, nothing_reported, reported
from goalgrid.results.tables.table import Group, Label, Row, Table, TableEntry

COLUMNS = (Label("ours"), Label("paper"), Label("difference"))


def layout(cells: Sequence[Cell], scores: Scores, metric: str) -> Table:
    """One metric of every cell of the grid, in both directions.

    Raises:
        UserError: no paper reports any of it.
    """
    titles = by_direction(metric)
    metrics = list(titles)
    match = reported(cells, scores, metrics)
    if not match.results:
        raise UserError(nothing_reported(cells, scores, metrics))
    groups = tuple(Group(title, COLUMNS) for title in titles.values())
    notes = dict.fromkeys(filter(None, (match.notes(cell, name) for cell in cells for name in metrics)))
    marks = {note: f"[{number}]" for number, note in enumerate(notes, 1)}
    blocks = blocks_of(cells, lambda block: (_row(cell, scores, match, metrics, marks) for cell in block.values()))
    summary = f"{caption(cells, scores, METRIC_NAMES[metric])} {_said(cells, match, metrics)}"
    summary += "".join(f" {mark}: {note}." for note, mark in marks.items())
    return Table("against", Label("objective"), groups, blocks, summary)


def _row(cell: Cell, scores: Scores, match: Match, metrics: list[str], marks: Mapping[str, str]) -> Row:
    entries: list[TableEntry | None] = []
    for metric in metrics:
        ours, result = scores.of(cell, metric), match.of(cell, metric)
        keys = {**scores.axes(cell), "metric": metric, **({"reported_in": result.name} if result else {})}
        note = match.notes(cell, metric)
        theirs = [result.value, Difference(ours, result.value)] if result else [None, None]
        for column, value, remark in zip(COLUMNS, [ours, *theirs], ["", note, note], strict=True):
            about = {**keys, "column": column.text, **({"note": remark} if remark else {})}
            mark = marks[remark] if remark and column is COLUMNS[1] else ""
            entries.append(TableEntry(value, tuple(about.items()), mark=mark) if value else None)
    return Row(Label(cell.objective), tuple(entries))


def _said(cells: Sequence[Cell], match: Match, metrics: list[str]) -> str:
    """Which tables the reported numbers stand in, how many cells have one, and what ± of a difference is."""
    matched = [cell for cell in cells if any(match.of(cell, metric) for metric in metrics)]
    changed = changes(matched)
    warning = f" Not the recipe's as published: {', '.join(changed)}." if changed else ""
    return (
        f"Paper: as printed in {', '.join(match.sources)}, for {len(matched)} of {len(cells)} cells. "
        f"Difference: ours - paper ± Welch's standard error, where both have a spread.{warning}"
    )
