"""A written table against the records: whether the file is the same byte for byte, and where it differs."""

import csv
import io
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from goalgrid.grid.errors import UserError
from goalgrid.results import renderers
from goalgrid.results.export.table_request import PROGRAM, TableRequest
from goalgrid.results.renderers import html, latex, markdown, parquet
from goalgrid.results.tables.table import Table

LATEX = (latex.escape, "", " & ", " \\\\")
MARKDOWN = (markdown.escape, "| ", " | ", " |")
"""How text is escaped, and what stands before, between and after the columns of a line."""

Rows = list[dict[str, Any]]
TextLines = list[tuple[str, ...]]


@dataclass(frozen=True)
class CheckOutcome:
    """The outcome of a check."""

    differences: tuple[str, ...]
    """Lines that name an entry, its text in the file and its text now."""
    note: str = ""
    """What a reader must know although nothing differs."""


def made_by(path: Path) -> tuple[TableRequest, str] | None:
    """The request and the format that a written table carries; None if it carries no command.

    Raises:
        UserError: the file cannot be read, or this version does not understand its command.
    """
    content = _read(path)
    if content.startswith(b"PAR1"):
        command = (_parquet(content, path).schema.metadata or {}).get(b"command", b"").decode()
    else:
        first = content.decode("utf-8", errors="replace").partition("\n")[0].rstrip()
        comments = {text.comment.rstrip() for text in renderers.TEXT.values() if text.comment}
        found = (re.fullmatch(re.escape(each).replace(r"\{\}", rf"({PROGRAM} .*)"), first) for each in comments)
        command = next((match[1] for match in found if match), "")
    return TableRequest.parse(command) if command else None


def compare(table: Table, kind: str, path: Path) -> CheckOutcome:
    """Compare a file with the table as it is now.

    Raises:
        UserError: the file cannot be read.
    """
    contents = _read(path), renderers.encoded(table, kind)
    if contents[0] == contents[1]:
        return CheckOutcome(())
    if kind == "parquet":
        return _of_data(*(_parquet(content, path) for content in contents))
    texts = [content.decode("utf-8", errors="replace") for content in contents]
    if kind == "csv":
        differences = _rows(*(list(csv.DictReader(io.StringIO(text))) for text in texts))
    else:
        before, now = (list(_lines(text, table, kind)) for text in texts)
        differences = _shown(before, now, table.heads)
    return CheckOutcome(tuple(differences) or ("the same, otherwise written",))


def trials(table: Table) -> Iterator[tuple[str, str, tuple[str, ...]]]:
    """Every number of a table: its name, its text, and the ids of the trials behind it."""
    entries = list(table.entries())
    names = _telling([dict(entry.keys) for entry in entries])
    for entry in entries:
        yield _label(dict(entry.keys), names), entry.text, entry.trials


def _of_data(old: pa.Table, new: pa.Table) -> CheckOutcome:
    if old.equals(new, check_metadata=True):
        return CheckOutcome((), "the same content in other bytes: another version of the Parquet library wrote it")
    differences = list(_rows(old.to_pylist(), new.to_pylist()))
    before, now = (
        {name.decode(): text.decode() for name, text in (table.schema.metadata or {}).items()} for table in (old, new)
    )
    differences += [f"{name}: {before.get(name)} -> {now.get(name)}" for name in now if before.get(name) != now[name]]
    return CheckOutcome(tuple(differences) or ("the same rows, otherwise written",))


def _rows(old: Rows, new: Rows) -> Iterator[str]:
    """A line for every tidy row that differs."""
    names = _telling([*old, *new])
    before, now = ({tuple(_keys(row).items()): row for row in rows} for rows in (old, new))
    texts = [{_label(dict(key), names): row["text"] for key, row in rows.items()} for rows in (before, now)]
    yield from _changes(*texts)
    for key in [key for key in now if key in before and before[key]["text"] == now[key]["text"]]:
        changed = [name for name in now[key] if before[key].get(name) != now[key][name]]
        for name in changed[:1]:
            yield f"{_label(dict(key), names)}: {name} {before[key].get(name)} -> {now[key][name]}"


def _changes(before: Mapping[str, str], now: Mapping[str, str]) -> Iterator[str]:
    """A line for every entry whose text differs, and for every entry that is gone or new."""
    for label in {**now, **before}:
        old, new = (texts.get(label, "no such entry") for texts in (before, now))
        if old != new:
            yield f"{label}: {old} -> {new}"


def _keys(row: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in row.items() if name not in parquet.VALUES}


def _telling(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Keys that together tell all rows apart; a key that separates no further rows is left out."""
    chosen: list[str] = []
    for name in dict.fromkeys(name for row in rows for name in _keys(row)):
        before, now = (len({tuple(map(row.get, names)) for row in rows}) for names in (chosen, [*chosen, name]))
        if now > before:
            chosen.append(name)
    return chosen


def _label(keys: Mapping[str, Any], names: Sequence[str]) -> str:
    return ", ".join(str(keys[name]) for name in names if keys.get(name))


def _shown(old: TextLines, new: TextLines, heads: Sequence[str]) -> Iterator[str]:
    """A line for every entry of a text that differs; lines that are no rows of the table are quoted."""
    rows, others = (
        [[line for line in lines if (len(line) == len(heads) + 2) == is_row] for lines in (old, new)]
        for is_row in (True, False)
    )
    yield from _changes(*(dict(_entries(lines, heads)) for lines in rows))
    before, now = ([" ".join(filter(None, words)) for _, *words in lines] for lines in others)
    gone, added = [line for line in before if line not in now], [line for line in now if line not in before]
    for line, other in zip_longest(gone, added, fillvalue="no such line"):
        yield f"line: {line} -> {other}"


def _entries(rows: TextLines, heads: Sequence[str]) -> Iterator[tuple[str, str]]:
    """The texts of a table's entries by the titles of their block, row and column."""
    for title, label, *entries in rows:
        for head, entry in zip(heads, entries, strict=True):
            yield ", ".join(filter(None, [title, label, head])), entry


def _lines(text: str, table: Table, kind: str) -> Iterator[tuple[str, ...]]:
    """The lines of a text: the title of the block, where there are several blocks, and the texts of the columns."""
    if kind == "html":
        yield from html.lines(text)
        return
    escape, start, between, end = LATEX if kind == "latex" else MARKDOWN
    titles = sorted((block.title for block in table.blocks), key=len) if len(table.blocks) > 1 else []
    title = ""
    for line in text.splitlines():
        cells = line.removeprefix(start).removesuffix(end).split(between)
        if len(cells) == 1:
            title = next((name for name in reversed(titles) if escape(name) in line), title)
        yield (title, *cells)


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
