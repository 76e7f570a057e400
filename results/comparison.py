"""Whether two runs of a grid gave the same: every column of every record, and every table, but when and how long."""

from collections.abc import Sequence
from typing import Any

from grid.expansion import Cell, trials_of
from grid.home import Home
from results import record
from results.layouts import arrange
from results.renderers import TEXT
from results.scores import Scores

CIRCUMSTANCES = frozenset({"train_seconds", "environment", "finished_at"})
"""Columns that say when, where and how long, of which no result depends."""


def differences(cells: Sequence[Cell], one: Home, other: Home) -> list[str]:
    """What differs between two homes, a line each: trials that are done, columns of their records, tables."""
    first, second = _records(cells, one), _records(cells, other)
    found = [f"{trial_id}: done in one run only" for trial_id in sorted(first.keys() ^ second.keys())]
    for trial_id in sorted(first.keys() & second.keys()):
        row, twin = first[trial_id], second[trial_id]
        found += [f"{trial_id}: {name} differs" for name in row if row[name] != twin[name]]
    if found or not first:
        return found or ["no trial is done"]
    tables = [arrange(cells, Scores.read(cells, home)) for home in (one, other)]
    return [f"the {name} table differs" for name, render in TEXT.items() if len({*map(render, tables)}) > 1]


def _records(cells: Sequence[Cell], home: Home) -> dict[str, dict[str, Any]]:
    """What each finished trial's record says, but its circumstances."""
    done = [folder for folder in (home.trial(trial.id) for trial in trials_of(cells)) if folder.done.exists()]
    rows = record.collect(folder.record for folder in done).to_pylist()
    return {row["trial_id"]: _result(row) for row in rows}


def _result(row: dict[str, Any]) -> dict[str, Any]:
    kept = {name: value for name, value in row.items() if name not in CIRCUMSTANCES}
    return kept | {"history": [logged for logged in row["history"] if logged["name"] != "seconds"]}
