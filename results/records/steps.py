"""Trace files next to a trial's record: values per step, triplets, learned pooling weights (checksummed Parquet)."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from goalgrid.grid.errors import UserError
from goalgrid.grid.groups import grouped
from goalgrid.results.records import checksummed

Leave = Callable[[str], None]
"""Takes the message about an unreadable file, which is then skipped."""
RETRAIN = "Retrain its trial: goalgrid run GRID --force --only FILTER."


def refuse(message: str) -> None:
    """Raise a UserError with the message, instead of skipping the file."""
    raise UserError(message)


def write(path: Path, rows: Iterable[Mapping[str, float]]) -> None:
    """Write rows keyed by "epoch" and "step", or by "rank"; if there are no rows, write no file."""
    if not (steps := list(rows)):
        return
    names = dict.fromkeys(name for row in steps for name in row)
    kinds = [(name, pa.int64() if name in ("epoch", "step", "rank") else pa.float64()) for name in names]
    checksummed.write(path, pa.Table.from_pylist(steps, pa.schema(kinds)), durable=False, compression="zstd")


def write_densities(
    path: Path, densities: Mapping[int, Sequence[Sequence[int]]], weights: Sequence[Sequence[float]]
) -> None:
    """Write the density of triplets over (s_pos, s_neg): one row per epoch and bin.

    Args:
        densities: counts (s_pos by s_neg) for each epoch.
        weights: the objective's weight of a triplet at the centre of each bin.
    """
    bins = range(len(weights))
    rows = [
        {"epoch": epoch, "s_pos": i, "s_neg": j, "count": counts[i][j], "weight": weights[i][j]}
        for epoch, counts in densities.items() for i in bins for j in bins
    ]  # fmt: skip
    checksummed.write(path, pa.Table.from_pylist(rows), durable=False, compression="zstd")


def read_densities(path: Path, leave: Leave = refuse) -> tuple[dict[int, list[int]], list[float]]:
    """Return the counts by epoch, and the weights; both flattened over bins, s_neg fastest. Empty without a file."""
    columns = columns_of(path, leave)
    counts = grouped(zip(columns.get("epoch", []), columns.get("count", []), strict=True))
    return counts, columns.get("weight", [])[: len(next(iter(counts.values()), []))]


def read(path: Path, along: str = "step", leave: Leave = refuse) -> dict[str, dict[int, float]]:
    """Return the values by name, then by step or rank (the column `along`); empty if the trial has no such file."""
    columns = columns_of(path, leave)
    steps = columns.pop(along, [])
    return {
        name: {step: value for step, value in zip(steps, values, strict=True) if value is not None}
        for name, values in columns.items()
    }


def columns_of(path: Path, leave: Leave, what: str = "trace", again: str = RETRAIN) -> dict[str, list[Any]]:
    """Read the columns of a file next to a record; empty if there is no file, or if it is unreadable and skipped.

    `what`, `again`: for the message: the kind of file, and how to recreate it.
    """
    try:
        return checksummed.read(path).to_pydict()
    except FileNotFoundError:
        return {}
    except (checksummed.Damaged, OSError) as error:
        leave(f"the {what} {path} cannot be read: {error}. {again}")
        return {}
