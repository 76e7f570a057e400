"""The README of an export, and the list of its trials with the commands that reproduce every number."""

import json
import shlex
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from goalgrid.grid.expansion import Cell
from goalgrid.grid.gridfile import Grid
from goalgrid.results.pages import page
from goalgrid.results.records.scores import Scores
from goalgrid.results.renderers import csv
from goalgrid.results.tables.table import Table


def readme(grid: Grid, cells: Sequence[Cell], tables: Mapping[Path, Table], environments: Iterable[str]) -> str:
    """What an export holds, how its tables and numbers are reproduced, and which machines trained the trials.

    Args:
        tables: tables by path below the export's folder, without the ending.
        environments: environments of the finished trials, as their records hold them.
    """
    machines = Counter(_machine(json.loads(environment)) for environment in environments)
    count = len({trial.id for cell in cells for trial in cell.trials})
    content = {"tables": tables, "machines": dict(machines.most_common()), "wanted": count}
    return page("export.md", name=grid.name, example=_train(cells[0]), **content)


def trials(cells: Sequence[Cell], scores: Scores) -> str:
    """A line for every cell and seed, as comma-separated values: id, axes, why it has no record, training command."""
    rows = [
        {
            "trial_id": trial.id,
            **cell.axes,
            "seed": "" if cell.published else str(trial.settings.seed),
            "missing": dict(scores.of(cell, "rsum").missing).get(trial.id, ""),
            "command": _train(cell, trial.settings.seed),
        }
        for cell in cells
        for trial in cell.trials
    ]
    return csv.written(list(rows[0]), [list(row.values()) for row in rows])


def _train(cell: Cell, seed: int | None = None) -> str:
    """The command that trains the trial of this seed; without a seed, all trials of the cell."""
    if cell.published:
        return "goalgrid evaluate FILE --into GRID"
    words = [f"{name}={value}" for name, value in cell.axes.items()]
    only = " ".join(words if seed is None else [*words, f"seed={seed}"])
    return f"goalgrid run grid.toml --only {shlex.quote(only)}"


def _machine(environment: Mapping[str, Any]) -> str:
    versions = ", ".join(f"{name} {version}" for name, version in environment["versions"].items())
    return f"Python {environment['python']}, {versions}; {environment['device']}, {environment['platform']}"
