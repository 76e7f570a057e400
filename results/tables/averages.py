"""Averages of a table: a last column and a last row with the mean over cells of the same metric."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, compress
from statistics import fmean
from typing import cast

from goalgrid.grid.errors import UserError
from goalgrid.results.records.rounding import written
from goalgrid.results.records.scores import Score, TableValue
from goalgrid.results.tables.table import Block, Label, Row, Table, TableEntry, shared_keys

MEAN = Label("mean")
OVER = "average_over"
"""Column of a tidy export: the axes over which a value is an average."""


@dataclass(frozen=True)
class Average(TableValue):
    """Mean of the means of several cells; it has no number if a cell lacks seeds, unless `partial`."""

    scores: tuple[Score, ...]
    """Scores of the cells that the grid has."""
    size: int
    """How many cells the row or column has room for."""
    partial: bool = False
    """Whether cells may lack seeds, or have no value at all."""

    @property
    def whole(self) -> int:
        return sum(score.n == score.expected for score in self.scores)

    @property
    def mean(self) -> float:
        """NaN if there is no number to show."""
        means = [score.mean for score in self.scores if score.n]
        return fmean(means) if means and (self.partial or self.whole == self.size) else math.nan

    @property
    def text(self) -> str:
        """`63.1`; with `(2/3)` where only 2 of 3 cells are whole.

        >>> cells = Score((63.0, 64.0), expected=2), Score((65.0,), expected=2)
        >>> Average(cells, 2).text, Average(cells, 2, partial=True).text
        ('--', '64.3 (1/2)')
        """
        if math.isnan(self.mean):
            return "--"
        lacking = f" ({self.whole}/{self.size})" if self.whole < self.size else ""
        return f"{written(self.mean)}{lacking}"

    def tidy(self) -> dict[str, object]:
        trials = dict.fromkeys(trial for score in self.scores for trial in score.trials)
        mean = None if math.isnan(self.mean) else self.mean
        return {"cells": self.size, "mean": mean, "text": self.text, "trials": list(trials)}


def averaged(table: Table, *, partial: bool = False) -> Table:
    """The table with means over the columns of each group and the rows of each block, of values that compete.

    Cells that lack seeds are averaged only where `partial`; otherwise such an average has no number.
    """
    if not all(isinstance(entry.score, Score) for entry in table.entries()):
        raise UserError(
            "--averages are over measured cells; leave --reference, --against, --layout known, parameters and kpps out."
        )
    rows = [row for block in table.blocks for row in block.rows]
    ends = accumulate(len(group.columns) for group in table.groups)
    spans = [slice(end - len(group.columns), end) for end, group in zip(ends, table.groups, strict=True)]
    across = [span for span in spans if span.stop - span.start > 1 and all(_alike(row.entries[span]) for row in rows)]
    down = all(_alike(column) for block in table.blocks for column in _columns(block.rows))
    down = down and any(len(block.rows) > 1 for block in table.blocks)
    if not down and not across:
        raise UserError("--averages: no row and no column of this table has several values of one metric.")
    groups = tuple(
        replace(group, columns=(*group.columns, MEAN)) if span in across else group
        for group, span in zip(table.groups, spans, strict=True)
    )
    blocks = []
    for block in table.blocks:
        wide = _widened(block, spans, across, partial=partial)
        filled = [row for row in wide if any(row.entries)]
        below = Row(MEAN, tuple(_mean(column, partial=partial) for column in _columns(filled)))
        blocks.append(replace(block, rows=(*wide, below) if down else wide))
    means = replace(table, blocks=tuple(blocks))
    scores = [entry.score for entry in means.entries() if isinstance(entry.score, Average)]
    if all(math.isnan(score.mean) and len(score.scores) < score.size for score in scores):
        raise UserError(
            "--averages: no row and no column of this table is whole, since the grid lacks cells of them. "
            "With --allow-partial the averages are over the cells that the grid has."
        )
    lines = " or ".join(["a row"] * bool(across) + ["a column"] * down)
    lacking = "also of those that lack seeds (whole/all cells)" if partial else "-- where one is missing or lacks seeds"
    note = f"The averages ({MEAN.text}) are over the cells of {lines}, {lacking}."
    return replace(means, groups=groups, caption=f"{table.caption} {note}")


def _widened(block: Block, spans: Sequence[slice], across: Sequence[slice], *, partial: bool) -> tuple[Row, ...]:
    """With a mean after every group of columns that is averaged, over the columns that the grid has."""
    used = [any(column) for column in _columns(block.rows)]
    rows = []
    for row in block.rows:
        entries: list[TableEntry | None] = []
        for span in spans:
            entries += row.entries[span]
            if span in across:
                entries.append(_mean(list(compress(row.entries[span], used[span])), partial=partial))
        rows.append(replace(row, entries=tuple(entries)))
    return tuple(rows)


def _mean(entries: Sequence[TableEntry | None], *, partial: bool) -> TableEntry | None:
    """The mean of cells, or of all cells behind averages; its keys are those in which the entries agree."""
    present = [entry for entry in entries if entry]
    if not present:
        return None
    values = [entry.score for entry in present]
    averages = [value if isinstance(value, Average) else Average((cast(Score, value),), 1) for value in values]
    scores = tuple(score for average in averages for score in average.scores)
    room = sum(average.size for average in averages) + len(entries) - len(present)
    agreed = shared_keys(present)
    over = [agreed.pop(OVER, ""), *(name for name, _ in present[0].keys if name not in {*agreed, OVER})]
    keys = {**agreed, OVER: ", ".join(filter(None, over))}
    return TableEntry(Average(scores, room, partial), tuple(keys.items()))


def _alike(entries: Sequence[TableEntry | None]) -> bool:
    return len({entry.contest for entry in entries if entry}) <= 1


def _columns(rows: Sequence[Row]) -> list[tuple[TableEntry | None, ...]]:
    return list(zip(*(row.entries for row in rows), strict=True))
