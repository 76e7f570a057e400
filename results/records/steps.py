"""Files next to a trial's record: values of steps, triplets, what a pooling learnt. Parquet with checksums."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from goalgrid.grid.errors import UserError
from goalgrid.grid.groups import grouped
from goalgrid.results.records import checksummed

Leave = Callable[[str], None]
"""Takes the message of a file next to a record that cannot be read, so that it is left out."""
RETRAIN = "Retrain its trial: goalgrid run GRID --force --only FILTER."


def refuse(message: str) -> None:
    """Leave no file out: raise a UserError."""
    raise UserError(message)


def write(path: Path, rows: Iterable[Mapping[str, float]]) -> None:
    """Write a row for each step, with "epoch" and "step", or a row for each "rank"; no file where there is no row."""
    if not (steps := list(rows)):
        return
    names = dict.fromkeys(name for row in steps for name in row)
    kinds = [(name, pa.int64() if name in ("epoch", "step", "rank") else pa.float64()) for name in names]
    checksummed.write(path, pa.Table.from_pylist(steps, pa.schema(kinds)), durable=False, compression="zstd")


def write_densities(
    path: Path, densities: Mapping[int, Sequence[Sequence[int]]], weights: Sequence[Sequence[float]]
) -> None:
    """Write where triplets lie: a row for each epoch and bin of (s_pos, s_neg).

    Args:
        densities: counts by epoch, s_pos by s_neg.
        weights: what the objective gives a triplet at the middle of each bin.
    """
    bins = range(len(weights))
    rows = [
        {"epoch": epoch, "s_pos": i, "s_neg": j, "count": counts[i][j], "weight": weights[i][j]}
        for epoch, counts in densities.items() for i in bins for j in bins
    ]  # fmt: skip
    checksummed.write(path, pa.Table.from_pylist(rows), durable=False, compression="zstd")


def read_densities(path: Path, leave: Leave = refuse) -> tuple[dict[int, list[int]], list[float]]:
    """Return counts by epoch and weights, bin by bin, s_pos by s_neg; empty if the trial kept none."""
    columns = columns_of(path, leave)
    counts = grouped(zip(columns.get("epoch", []), columns.get("count", []), strict=True))
    return counts, columns.get("weight", [])[: len(next(iter(counts.values()), []))]


def read(path: Path, along: str = "step", leave: Leave = refuse) -> dict[str, dict[int, float]]:
    """Return values by name, then by step or by rank, as `along` says; empty if the trial kept none."""
    columns = columns_of(path, leave)
    steps = columns.pop(along, [])
    return {
        name: {step: value for step, value in zip(steps, values, strict=True) if value is not None}
        for name, values in columns.items()
    }


def columns_of(path: Path, leave: Leave, what: str = "trace", again: str = RETRAIN) -> dict[str, list[Any]]:
    """Read the columns of a file next to a record; empty without a file, or if it is unreadable and left out.

    `what`, `again`: for the message: the kind of file, and how to make it again.
    """
    try:
        return checksummed.read(path).to_pydict()
    except FileNotFoundError:
        return {}
    except (checksummed.Damaged, OSError) as error:
        leave(f"the {what} {path} cannot be read: {error}. {again}")
        return {}
