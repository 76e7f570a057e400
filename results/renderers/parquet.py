"""A table as data: one row a cell and metric, unrounded, with the trials behind each number."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from results.table import Table


def tidy(table: Table) -> pa.Table:
    """One row an entry: its axes, its metric, and what its value knows, as n, mean, std and the trials' ids."""
    rows = [entry.tidy() for entry in table.entries()]
    names = dict.fromkeys(name for row in rows for name in row)
    kinds = {
        "n": pa.int32(),
        "expected": pa.int32(),
        "mean": pa.float64(),
        "std": pa.float64(),
        "difference": pa.float64(),
        "standard_error": pa.float64(),
        "like_best": pa.bool_(),
        "trials": pa.list_(pa.string()),
    }
    schema = pa.schema(
        [(name, kinds.get(name, pa.string())) for name in names],
        metadata={"layout": table.name, "caption": table.caption},
    )
    return pa.Table.from_pylist(rows, schema=schema)


def write(table: Table, path: Path) -> None:
    """Write the tidy rows; the caption stands in the schema's metadata."""
    pq.write_table(tidy(table), path)
