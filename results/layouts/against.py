"""A grid beside the papers: for each cell ours, theirs, and the difference with its standard error."""

from collections.abc import Sequence

from grid.expansion import Cell
from results.layouts.captions import METRIC_NAMES, block_title, blocks_of, caption
from results.layouts.columns import by_direction
from results.records.scores import Scores, TableValue
from results.reference import Difference, Match, match
from results.reference.matching import changes
from results.tables.table import Block, Group, Label, Row, Table, TableEntry

COLUMNS = (Label("ours"), Label("paper"), Label("difference"))


def layout(cells: Sequence[Cell], scores: Scores, metric: str) -> Table:
    """One metric of every cell of the grid, in both directions.

    Raises:
        UserError: no paper reports any of it.
    """
    titles = by_direction(metric)
    metrics = list(titles)
    found = match(cells, scores, metrics)
    groups = tuple(Group(title, COLUMNS) for title in titles.values())
    blocks = tuple(
        Block(block_title(key), tuple(_row(cell, scores, found, metrics) for cell in block.values()))
        for key, block in blocks_of(cells).items()
    )
    summary = f"{caption(cells, scores, METRIC_NAMES[metric])} {_said(cells, found, metrics)}"
    return Table("against", Label("objective"), groups, blocks, summary)


def _row(cell: Cell, scores: Scores, found: Match, metrics: list[str]) -> Row:
    entries = (entry for metric in metrics for entry in _entries(cell, scores, found, metric))
    return Row(Label(cell.objective), tuple(entries))


def _entries(cell: Cell, scores: Scores, found: Match, metric: str) -> list[TableEntry | None]:
    ours, result = scores.of(cell, metric), found.of(cell, metric)
    axes = {**scores.axes(cell), "metric": metric}
    if result is None:
        return [_entry(ours, axes, "ours"), None, None]
    source = {**axes, "reported_in": result.name}
    return [
        _entry(ours, source, "ours"),
        _entry(result.value, source, "paper"),
        _entry(Difference(ours, result.value), source, "difference"),
    ]


def _entry(value: TableValue, axes: dict[str, str], column: str) -> TableEntry:
    return TableEntry(value, tuple({**axes, "column": column}.items()))


def _said(cells: Sequence[Cell], found: Match, metrics: list[str]) -> str:
    """Which tables the reported numbers stand in, how many cells have one, and what ± of a difference is."""
    tables = ", ".join(found.sources)
    count = sum(any(found.of(cell, metric) for metric in metrics) for cell in cells)
    changed = changes([cell for cell in cells if any(found.of(cell, metric) for metric in metrics)])
    warning = f" Not the recipe's as published: {', '.join(changed)}." if changed else ""
    return (
        f"Paper: as printed in {tables}, for {count} of {len(cells)} cells. "
        f"Difference: ours - paper ± Welch's standard error, where both have a spread.{warning}"
    )
