"""A table as data: one row a cell and metric, unrounded, with the trials behind each number."""

import io

import pyarrow as pa
import pyarrow.parquet as pq

from goalgrid.results.tables.table import Table

VALUES = {
    "n": pa.int32(),
    "expected": pa.int32(),
    "cells": pa.int32(),
    "mean": pa.float64(),
    "std": pa.float64(),
    "interval_low": pa.float64(),
    "interval_high": pa.float64(),
    "difference": pa.float64(),
    "standard_error": pa.float64(),
    "like_best": pa.bool_(),
    "text": pa.string(),
    "trials": pa.list_(pa.string()),
    "missing": pa.string(),
}
"""Columns that say what a value is; all others say what it is of."""


def tidy(table: Table) -> pa.Table:
    """One row an entry: its axes, its metric, and what its value knows, as n, mean, std and the trials' ids."""
    rows = [entry.tidy() for entry in table.entries()]
    command = {"command": f"{table.command} --format parquet"} if table.command else {}
    names = dict.fromkeys(name for row in rows for name in row)
    schema = pa.schema(
        [(name, VALUES.get(name, pa.string())) for name in names],
        metadata={"layout": table.name, "caption": table.caption, **command},
    )
    return pa.Table.from_pylist(rows, schema=schema)


def encoded(table: Table) -> bytes:
    """The tidy rows as a Parquet file; caption and command stand in the schema's metadata."""
    target = io.BytesIO()
    pq.write_table(tidy(table), target)
    return target.getvalue()
