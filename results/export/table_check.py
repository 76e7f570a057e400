"""A written table against the same table rendered anew: whether the file is the same, and in which lines it differs."""

import io
import json
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from difflib import unified_diff
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from goalgrid.grid.errors import UserError
from goalgrid.results import renderers
from goalgrid.results.export.table_request import PROGRAM
from goalgrid.results.renderers import parquet
from goalgrid.results.tables.table import Table


class CheckOutcome(NamedTuple):
    differences: Sequence[str] = ()
    """The lines that differ, as `diff` writes them: `-` as in the file, `+` as now."""
    note: str = ""


def command_of(path: Path) -> str:
    """The command that a written table carries; empty if it carries none."""
    content = _read(path)
    if content.startswith(b"PAR1"):
        return (_parquet(content, path).schema.metadata or {}).get(b"command", b"").decode()
    if content.startswith(b"{"):
        with suppress(ValueError):
            return str(json.loads(content).get("command", ""))
    first = content.decode("utf-8", errors="replace").partition("\n")[0].rstrip()
    comments = {text.comment.rstrip() for text in renderers.TEXT.values() if text.comment}
    patterns = [re.escape(comment).replace(r"\{\}", rf"({PROGRAM} .*)") for comment in comments]
    return next((match[1] for pattern in patterns if (match := re.fullmatch(pattern, first))), "")


def compare(table: Table, kind: str, path: Path) -> CheckOutcome:
    file, rendered = _read(path), renderers.encoded(table, kind)
    if file == rendered:
        return CheckOutcome()
    before, now = (_lines(content, kind, path) for content in (file, rendered))
    if differences := list(unified_diff(before, now, n=0, lineterm=""))[2:]:
        return CheckOutcome(differences)
    if kind in renderers.DATA:
        return CheckOutcome((), "the same content in other bytes: another version of the Parquet library wrote it")
    return CheckOutcome(["the same, otherwise written"])


def trials(table: Table) -> Iterator[tuple[str, str, tuple[str, ...]]]:
    """Every number of a table: its name, its text, and the ids of the trials behind it."""
    rows = [dict(entry.keys) for entry in table.entries()]
    names = parquet.telling(rows, (name for keys in rows for name in keys))
    for keys, entry in zip(rows, table.entries(), strict=True):
        yield ", ".join(keys[name] for name in names if keys.get(name)), entry.text, entry.trials


def _lines(content: bytes, kind: str, path: Path) -> list[str]:
    if kind not in renderers.DATA:
        text = content.decode("utf-8", errors="replace")
        return (re.sub(r"<[^>]*>", " ", text) if kind == "html" else text).splitlines()
    table = _parquet(content, path)
    metadata = [f"{name.decode()}: {text.decode()}" for name, text in (table.schema.metadata or {}).items()]
    return [
        *metadata,
        *(", ".join(map(str, row)) for row in (table.column_names, *map(dict.values, table.to_pylist()))),
    ]


def _read(path: Path) -> bytes:
    if path.is_dir():
        raise UserError(f"{path} is a folder: name a written table in it, e.g. {path / 'table.tex'}.")
    try:
        return path.read_bytes()
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror}.") from error


def _parquet(content: bytes, path: Path) -> pa.Table:
    try:
        return pq.ParquetFile(io.BytesIO(content)).read()
    except pa.ArrowInvalid as error:
        raise UserError(f"{path} is no Parquet file: {error}.") from error
