"""A written table against the same table rendered anew: whether the file is the same, and where it differs."""

import csv
import io
import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import zip_longest
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from goalgrid.grid.errors import UserError
from goalgrid.results import renderers
from goalgrid.results.export.table_request import PROGRAM
from goalgrid.results.renderers import parquet
from goalgrid.results.tables.table import Table

BETWEEN = {"latex": r" & | \\\\$", "markdown": r"^\| | \| | \|$", "html": r"\t"}
"""What stands between the cells of a line, as a pattern."""

Lines = list[list[str]]
"""The cells of each line."""


class CheckOutcome(NamedTuple):
    """The outcome of a check."""

    differences: Sequence[str] = ()
    """The cells that differ, with their line and their texts in the file and now; of other lines, the first one."""
    note: str = ""
    """What a reader must know although nothing differs."""


def command_of(path: Path) -> str:
    """The command that a written table carries; empty if it carries none.

    Raises:
        UserError: the file cannot be read.
    """
    content = _read(path)
    if content.startswith(b"PAR1"):
        return (_parquet(content, path).schema.metadata or {}).get(b"command", b"").decode()
    first = content.decode("utf-8", errors="replace").partition("\n")[0].rstrip()
    comments = {text.comment.rstrip() for text in renderers.TEXT.values() if text.comment}
    patterns = [re.escape(comment).replace(r"\{\}", rf"({PROGRAM} .*)") for comment in comments]
    return next((match[1] for pattern in patterns if (match := re.fullmatch(pattern, first))), "")


def compare(table: Table, kind: str, path: Path) -> CheckOutcome:
    """Compare a file with the table rendered anew.

    Raises:
        UserError: the file cannot be read.
    """
    file, rendered = _read(path), renderers.encoded(table, kind)
    if file == rendered:
        return CheckOutcome()
    before, now = (_lines(content, kind, path) for content in (file, rendered))
    if differences := list(_differences(before, now)):
        return CheckOutcome(differences)
    if kind == "parquet":
        return CheckOutcome((), "the same content in other bytes: another version of the Parquet library wrote it")
    return CheckOutcome(["the same, otherwise written"])


def trials(table: Table) -> Iterator[tuple[str, str, tuple[str, ...]]]:
    """Every number of a table: its name, its text, and the ids of the trials behind it."""
    entries = [(dict(entry.keys), entry) for entry in table.entries()]
    names = _telling([keys for keys, _ in entries])
    for keys, entry in entries:
        yield _label(keys, names), entry.text, entry.trials


def _telling(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Keys that together tell all rows apart; a key that separates no further rows is left out."""
    chosen: list[str] = []
    for name in dict.fromkeys(name for row in rows for name in row if name not in parquet.VALUES):
        before, now = (len({tuple(map(row.get, names)) for row in rows}) for names in (chosen, [*chosen, name]))
        if now > before:
            chosen.append(name)
    return chosen


def _label(keys: Mapping[str, Any], names: Sequence[str]) -> str:
    return ", ".join(str(keys[name]) for name in names if keys.get(name))


def _differences(before: Lines, now: Lines) -> Iterator[str]:
    """A line for every cell that differs; where lines are gone or new, for the first line that differs alone."""
    for number, (old, new) in enumerate(zip_longest(before, now), 1):
        if old == new:
            continue
        if old and new and len(old) == len(new) > 1:
            heads, *rows = [line for line in now if len(line) == len(new)]
            label = next(filter(None, new), "")
            if "text" in heads:  # data: a row has no title
                names = _telling([dict(zip(heads, row, strict=True)) for row in rows])
                label = _label(dict(zip(heads, new, strict=True)), names)
            changed = [cells for cells in zip(heads, old, new, strict=True) if cells[1] != cells[2]]
            yield from (f"line {number}, {label}, {head}: {a} -> {b}" for head, a, b in changed)
        else:
            texts = (", ".join(line) if line else "no such line" for line in (old, new))
            yield f"line {number}: {' -> '.join(texts)}"
        if len(before) != len(now):
            return


def _lines(content: bytes, kind: str, path: Path) -> Lines:
    if kind == "parquet":
        table = _parquet(content, path)
        metadata = [[f"{name.decode()}: {text.decode()}"] for name, text in (table.schema.metadata or {}).items()]
        return [*metadata, table.column_names, *([str(value) for value in row.values()] for row in table.to_pylist())]
    text = content.decode("utf-8", errors="replace")
    if kind == "html":
        text = re.sub(r"<[^>]*>", "", text.replace("</th>", "\t").replace("</td>", "\t"))
    lines = text.splitlines()
    if kind == "csv":
        return list(csv.reader(lines))
    return [re.split(BETWEEN[kind], line) if kind in BETWEEN else [line] for line in lines]


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
