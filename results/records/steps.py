"""The values of single steps that a trial with `train.trace_every` keeps beside its record: a sealed Parquet file."""

from collections.abc import Iterable, Mapping
from pathlib import Path

import pyarrow as pa

from grid.errors import UserError
from grid.store.files import written_aside
from results.records import sealed


def write(path: Path, rows: Iterable[Mapping[str, float]]) -> None:
    """Write a row a step, with "epoch", "step" and what was measured; nothing where no step was kept.

    Raises:
        UserError: the disk is full or read-only.
    """
    if not (steps := list(rows)):
        return
    names = dict.fromkeys(name for row in steps for name in row)
    kinds = {name: pa.int64() if name in ("epoch", "step") else pa.float64() for name in names}
    columns = {name: pa.array([row.get(name) for row in steps], kinds[name]) for name in names}
    with written_aside(path, durable=False) as aside:
        aside.write_bytes(sealed.dumped(pa.table(columns), compression="zstd"))


def read(path: Path) -> dict[str, dict[int, float]]:
    """Values by name, then by step; nothing where the trial kept none.

    Raises:
        UserError: the file cannot be read.
    """
    try:
        columns = sealed.read(path).to_pydict()
    except FileNotFoundError:
        return {}
    except (sealed.Damaged, OSError) as error:
        again = "Train its trial anew: goalgrid run GRID --force --only FILTER."
        raise UserError(f"the trace {path} cannot be read: {error}. {again}") from error
    steps = columns.pop("step", [])
    return {
        name: {step: value for step, value in zip(steps, values, strict=True) if value is not None}
        for name, values in columns.items()
    }
