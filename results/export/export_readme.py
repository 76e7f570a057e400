"""The README of an export, and the list of its trials with the commands that reproduce every number."""

import json
import shlex
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from grid.expansion import Cell
from grid.gridfile import Grid
from results.records.scores import Scores
from results.renderers import csv
from results.tables.table import Table


def readme(grid: Grid, cells: Sequence[Cell], tables: Mapping[Path, Table], environments: Iterable[str]) -> str:
    """What an export holds, how its tables and numbers are reproduced, and which machines trained the trials.

    Args:
        tables: tables by path below the export's folder, without the ending.
        environments: environments of the finished trials, as their records hold them.
    """
    done = Counter(_machine(json.loads(environment)) for environment in environments)
    wanted = len({trial.id for cell in cells for trial in cell.trials})
    made = "\n".join(f"- `{path}.*`: `{table.command} --format FORMAT`" for path, table in tables.items())
    example = _train(cells[0])
    return f"""# {grid.name}

{done.total()} of {wanted} trials are done.

- `report.html`: all of it as one page; it opens from disk
- `tables/`: each table as LaTeX, Markdown, CSV, HTML and Parquet
- `figures/`: the matrix, effects, learning curves, diagnostics and ours against the paper's, each as PDF, SVG, PNG
- `effects.md`: which axis matters, what differs from the baseline, and how sure that is
- `records.parquet`: one row a trial, with the rank of every test query; the columns' meaning stands in its schema
- `trials/`: settings, environment and history of each trial
- `trials.csv`: one row a trial with its axes, why it is missing if it is, and the command that trains it alone
- `grid.toml`: the grid

## From nothing to the tables

```
goalgrid run grid.toml
```

trains what is not done and prints the first table. Then, in the same folder, or with the same `--runs DIR`:

{made}

FORMAT is latex, markdown, csv, html or parquet. Whether a file is still what the records say, byte for byte, and from
which trials each of its numbers comes:

```
goalgrid table --check {next(iter(tables))}.tex --trials
```

## One number

Find its row in the table's `.csv` or `.parquet`: the first columns say what it is of, `mean`, `std` and `n` are
unrounded, `trials` holds the ids of the trials behind it and `missing` those that lack. Their metrics stand in
`records.parquet` under `trial_id`. `trials.csv` has the command that trains each of them alone; all seeds of one cell:

```
{example}
```

## What trained them

{_listed(done) or "Nothing is done yet."}

## Whether the files are whole

```
sha256sum -c SHA256SUMS
```
"""


def trials(cells: Sequence[Cell], scores: Scores) -> str:
    """A line for every cell and seed, as comma-separated values: id, axes, why it has no record, training command."""
    rows = [
        {
            "trial_id": trial.id,
            **cell.axes,
            "seed": str(trial.settings.seed),
            "missing": dict(scores.of(cell, "rsum").missing).get(trial.id, ""),
            "command": _train(cell, trial.settings.seed),
        }
        for cell in cells
        for trial in cell.trials
    ]
    return csv.written(list(rows[0]), [list(row.values()) for row in rows])


def _train(cell: Cell, seed: int | None = None) -> str:
    """The command that trains the trial of this seed; without a seed, all trials of the cell."""
    words = [f"{name}={value}" for name, value in cell.axes.items()]
    only = " ".join(words if seed is None else [*words, f"seed={seed}"])
    return f"goalgrid run grid.toml --only {shlex.quote(only)}"


def _machine(environment: Mapping[str, Any]) -> str:
    versions = ", ".join(f"{name} {version}" for name, version in environment["versions"].items())
    return f"Python {environment['python']}, {versions}; {environment['device']}, {environment['platform']}"


def _listed(machines: Counter[str]) -> str:
    return "\n".join(f"- {count} trial{'s' * (count != 1)}: {machine}" for machine, count in machines.most_common())
