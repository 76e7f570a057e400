"""Averages of a table: a last column and a last row with the mean over cells of the same metric."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from statistics import fmean

from grid.errors import UserError
from results.records.scores import SHOWN_DIGITS, Score, TableValue
from results.tables.table import Block, Group, Label, Row, Table, TableEntry

MEAN = Label("mean")
OVER = "average_over"
"""Column of a tidy export: the axes over which a value is an average."""


@dataclass(frozen=True)
class Average(TableValue):
    """Mean of the means of several cells; it has no number if a cell lacks seeds, unless `partial`."""

    scores: tuple[Score, ...]
    """Scores of the cells that the grid has."""
    wanted: int
    """How many cells the row or column has room for."""
    partial: bool = False
    """Whether cells may lack seeds, or have no value at all."""

    @property
    def whole(self) -> int:
        """How many cells have all their seeds."""
        return sum(score.n == score.expected for score in self.scores)

    @property
    def mean(self) -> float:
        """NaN if there is no number to show."""
        means = [score.mean for score in self.scores if score.n]
        return fmean(means) if means and (self.partial or self.whole == self.wanted) else math.nan

    @property
    def text(self) -> str:
        """`63.1`; with `(2/3)` where only 2 of 3 cells are whole.

        >>> cells = Score((63.0, 64.0), expected=2), Score((65.0,), expected=2)
        >>> Average(cells, 2).text, Average(cells, 2, partial=True).text
        ('--', '64.2 (1/2)')
        """
        if math.isnan(self.mean):
            return "--"
        return f"{self.mean:.{SHOWN_DIGITS}f}{f' ({self.whole}/{self.wanted})' if self.whole < self.wanted else ''}"

    def tidy(self) -> dict[str, object]:
        """The mean, the number of cells, and the trials behind them."""
        trials = dict.fromkeys(trial for score in self.scores for trial in score.trials)
        mean = None if math.isnan(self.mean) else self.mean
        return {"cells": self.wanted, "mean": mean, "text": self.text, "trials": list(trials)}


def averaged(table: Table, *, partial: bool = False) -> Table:
    """The table with means over the columns of each group, and over the rows of each block.

    Only values that compete are averaged: those of the same metric, data set and protocol.

    Args:
        partial: whether cells that lack seeds are averaged too; otherwise such an average has no number.

    Raises:
        UserError: no row and no column holds several values of the same metric, or values were not measured.
    """
    if not all(isinstance(entry.score, Score) for entry in table.entries()):
        raise UserError("--averages are over measured cells; leave --reference, --against and --layout known out.")
    rows = [row for block in table.blocks for row in block.rows]
    averages = [
        len(group.columns) > 1 and all(_alike(row.entries[span]) for row in rows)
        for group, span in zip(table.groups, _spans(table.groups), strict=True)
    ]
    down = all(_alike(column) for block in table.blocks for column in _columns(block.rows))
    down = down and any(len(block.rows) > 1 for block in table.blocks)
    if not down and not any(averages):
        raise UserError("--averages: no row and no column of this table has several values of one metric.")
    groups = tuple(
        replace(group, columns=(*group.columns, MEAN)) if average else group
        for group, average in zip(table.groups, averages, strict=True)
    )
    blocks = []
    for block in table.blocks:
        wide = _across(block, table.groups, averages, partial=partial)
        blocks.append(replace(block, rows=(*wide, _below(wide, partial=partial)) if down else wide))
    lines = " or ".join(["a row"] * any(averages) + ["a column"] * down)
    lacking = "also of those that lack seeds (whole/all cells)" if partial else "-- where one lacks seeds"
    said = f"The averages ({MEAN.text}) are over the cells of {lines}, {lacking}."
    return replace(table, groups=groups, blocks=tuple(blocks), caption=f"{table.caption} {said}")


def _across(block: Block, groups: Sequence[Group], averages: Sequence[bool], *, partial: bool) -> tuple[Row, ...]:
    """The rows, with a mean after every group of columns that is averaged."""
    used = [any(column) for column in _columns(block.rows)]
    rows = []
    for row in block.rows:
        entries: list[TableEntry | None] = []
        for span, average in zip(_spans(groups), averages, strict=True):
            in_grid = [entry for entry, is_used in zip(row.entries[span], used[span], strict=True) if is_used]
            entries += [*row.entries[span], *([_mean(in_grid, partial=partial)] if average else [])]
        rows.append(Row(row.label, tuple(entries)))
    return tuple(rows)


def _below(rows: Sequence[Row], *, partial: bool) -> Row:
    """The mean of every column, over the rows that the grid has."""
    filled = [row for row in rows if any(row.entries)]
    return Row(MEAN, tuple(_mean(column, partial=partial) for column in _columns(filled)))


def _mean(entries: Sequence[TableEntry | None], *, partial: bool) -> TableEntry | None:
    """The mean of cells, or of all cells behind averages; its keys are those in which the entries agree."""
    present = [entry for entry in entries if entry]
    if not present:
        return None
    scores = tuple(score for entry in present for score in _scores(entry))
    wanted = sum(entry.score.wanted if entry and isinstance(entry.score, Average) else 1 for entry in entries)
    first, *others = [dict(entry.keys) for entry in present]
    agreed = {name: value for name, value in first.items() if all(keys.get(name) == value for keys in others)}
    inner = agreed.pop(OVER, "")
    over = [*([inner] if inner else []), *(name for name in first if name not in agreed and name != OVER)]
    keys = {**agreed, OVER: ", ".join(over)}
    return TableEntry(Average(scores, wanted, partial), tuple(keys.items()))


def _scores(entry: TableEntry) -> tuple[Score, ...]:
    value = entry.score
    return value.scores if isinstance(value, Average) else (value,) if isinstance(value, Score) else ()


def _alike(entries: Sequence[TableEntry | None]) -> bool:
    return len({entry.contest for entry in entries if entry}) <= 1


def _columns(rows: Sequence[Row]) -> list[tuple[TableEntry | None, ...]]:
    return list(zip(*(row.entries for row in rows), strict=True))


def _spans(groups: Sequence[Group]) -> list[slice]:
    """The columns of every group, as slices of a row."""
    ends = list(accumulate(len(group.columns) for group in groups))
    return [slice(end - len(group.columns), end) for end, group in zip(ends, groups, strict=True)]
