"""Whether two runs of a grid gave the same records and tables, apart from dates, durations and machines."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from goalgrid.grid.expansion import Cell, trials_of
from goalgrid.grid.store.home import Home
from goalgrid.results.layouts import arrange
from goalgrid.results.records import record
from goalgrid.results.records.scores import Scores
from goalgrid.results.renderers import TEXT

CIRCUMSTANCES = frozenset({"train_seconds", "environment", "finished_at"})
"""Columns that say when, where and how long a trial ran; no result depends on them."""


def differences(cells: Sequence[Cell], one: Home, other: Home) -> list[str]:
    """A line for every difference between two homes: in the finished trials, columns of their records, and tables."""
    first, second = _records(cells, one), _records(cells, other)
    lines = [f"{trial_id}: done in one run only" for trial_id in sorted(first.keys() ^ second.keys())]
    for trial_id in sorted(first.keys() & second.keys()):
        row, twin = first[trial_id], second[trial_id]
        lines += [f"{trial_id}: {name} differs" for name in row if row[name] != twin[name]]
    if lines or not first:
        return lines or ["no trial is done"]
    tables = [arrange(cells, Scores.read(cells, home)) for home in (one, other)]
    return [f"the {name} table differs" for name, kind in TEXT.items() if len({*map(kind.render, tables)}) > 1]


def differing(one: Path, other: Path) -> list[str]:
    """The columns in which two records differ, apart from the circumstances."""
    first, second = (_results(record.collect([path]))[0] for path in (one, other))
    return [name for name in first if first[name] != second[name]]


def _records(cells: Sequence[Cell], home: Home) -> dict[str, dict[str, Any]]:
    """The finished trials' records by trial id, without the circumstances."""
    done = [folder for folder in (home.trial(trial.id) for trial in trials_of(cells)) if folder.is_done()]
    return {row["trial_id"]: row for row in _results(record.collect(folder.record for folder in done))}


def _results(records: pa.Table) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = records.drop_columns(sorted(CIRCUMSTANCES)).to_pylist()
    for row in rows:
        row["history"] = [logged for logged in row["history"] if logged["name"] != "seconds"]
    return rows
