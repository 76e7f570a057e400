"""A written table against the records: whether the file is the same byte for byte, and where it differs."""

import csv
import io
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from grid.errors import UserError
from results import renderers
from results.export.table_request import PROGRAM, TableRequest
from results.renderers import html, latex, markdown, parquet
from results.tables.table import Table

Rows = list[dict[str, Any]]


@dataclass(frozen=True)
class Comparison:
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


def kind_of(path: Path) -> str | None:
    """The format that belongs to a file's ending; None if no format does."""
    endings = {ending: kind for kind, ending in renderers.ENDINGS.items()}
    return endings.get(path.suffix.removeprefix("."))


def compare(table: Table, kind: str, path: Path) -> Comparison:
    """Compare a file with the table as it is now.

    Raises:
        UserError: the file cannot be read.
    """
    old = _read(path)
    if kind == "parquet":
        new_bytes = _bytes(table)
        return _of_data(_parquet(old, path), _parquet(new_bytes, path), same=old == new_bytes)
    new = renderers.text(table, kind)
    if old == new.encode():
        return Comparison(())
    before = old.decode("utf-8", errors="replace")
    if kind == "csv":
        rows = [list(csv.DictReader(io.StringIO(text))) for text in (before, new)]
        return Comparison(tuple(_rows(*rows)) or ("the same rows, otherwise written",))
    if kind == "html":
        return Comparison(tuple(_cells(html.lines(before), html.lines(new), table)) or ("the same, otherwise written",))
    return Comparison(tuple(_lines(before.splitlines(), new.splitlines(), table, kind)) or ("only line ends",))


def trials(table: Table) -> Iterator[tuple[str, str, tuple[str, ...]]]:
    """Every number of a table: its name, its text, and the ids of the trials behind it."""
    entries = list(table.entries())
    names = _telling([dict(entry.keys) for entry in entries])
    for entry in entries:
        yield _label(dict(entry.keys), names), entry.text, entry.trials


def _of_data(old: pa.Table, new: pa.Table, *, same: bool) -> Comparison:
    if same:
        return Comparison(())
    if old.equals(new, check_metadata=True):
        return Comparison((), "the same content in other bytes: another version of the Parquet library wrote it")
    differences = list(_rows(old.to_pylist(), new.to_pylist()))
    before, now = (
        {name.decode(): text.decode() for name, text in (table.schema.metadata or {}).items()} for table in (old, new)
    )
    differences += [f"{name}: {before.get(name)} -> {now.get(name)}" for name in now if before.get(name) != now[name]]
    return Comparison(tuple(differences) or ("the same rows, otherwise written",))


def _rows(old: Rows, new: Rows) -> Iterator[str]:
    """A line for every tidy row that differs."""
    names = _telling([*old, *new])
    before, now = ({tuple(_keys(row).items()): row for row in rows} for rows in (old, new))
    for key in {**now, **before}:
        label = _label(dict(key), names)
        if key not in now:
            yield f"{label}: {before[key].get('text')} -> no such entry"
        elif key not in before:
            yield f"{label}: no such entry -> {now[key].get('text')}"
        else:
            changed = [name for name in now[key] if before[key].get(name) != now[key][name]]
            shown = ["text"] if "text" in changed else changed[:1]
            for name in shown:
                what = "" if name == "text" else f"{name} "
                yield f"{label}: {what}{before[key].get(name)} -> {now[key][name]}"


def _keys(row: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in row.items() if name not in parquet.VALUES}


def _telling(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Keys that together tell all rows apart; a key that separates no further rows is left out."""
    chosen: list[str] = []
    for name in dict.fromkeys(name for row in rows for name in _keys(row)):
        if _distinct(rows, [*chosen, name]) > _distinct(rows, chosen):
            chosen.append(name)
    return chosen


def _distinct(rows: Sequence[Mapping[str, Any]], names: Sequence[str]) -> int:
    return len({tuple(row.get(name) for name in names) for row in rows})


def _label(keys: Mapping[str, Any], names: Sequence[str]) -> str:
    return ", ".join(str(keys[name]) for name in names if keys.get(name))


def _lines(old: list[str], new: list[str], table: Table, kind: str) -> Iterator[str]:
    """A line for every entry that differs; lines that are not rows of the table are quoted whole."""
    heads = _heads(table)
    titles = list(_titles(new, table, kind))
    for tag, first, last, start, end in SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        if tag == "equal":
            continue
        if last - first != end - start:
            yield f"line {first + 1}: {last - first} lines -> {end - start} lines"
            continue
        for offset, (before, now) in enumerate(zip(old[first:last], new[start:end], strict=True)):
            (label, *entries), (_, *others) = _split(now, kind), _split(before, kind)
            if len(entries) == len(others) == len(heads):
                place = ", ".join(filter(None, [titles[start + offset], label]))
                yield from (
                    f"{place}, {head}: {other} -> {entry}"
                    for head, other, entry in zip(heads, others, entries, strict=True)
                    if other != entry
                )
            else:
                yield f"line {first + offset + 1}: {before} -> {now}"


def _cells(old: Sequence[tuple[str, ...]], new: Sequence[tuple[str, ...]], table: Table) -> Iterator[str]:
    """A line for every entry of a page that differs and every row that is gone or new; other text is quoted."""
    heads = _heads(table)
    rows, others = (
        [{line[:2]: line[2:] for line in lines if len(line) == len(heads) + 2} for lines in (old, new)],
        [[line for line in lines if len(line) != len(heads) + 2] for lines in (old, new)],
    )
    before, now = rows
    for key in {**now, **before}:
        place = ", ".join(filter(None, key))
        if key not in now or key not in before:
            yield f"{place}: the row is gone" if key not in now else f"{place}: a new row"
            continue
        for head, other, entry in zip(heads, before[key], now[key], strict=True):
            if other != entry:
                yield f"{place}, {head}: {other} -> {entry}"
    if others[0] != others[1]:
        yield " -> ".join(" ".join(word for line in lines for word in line if word) for lines in others)


def _heads(table: Table) -> list[str]:
    return [f"{group.title.text} {column.text}".strip() for group in table.groups for column in group.columns]


def _titles(lines: Sequence[str], table: Table, kind: str) -> Iterator[str]:
    """The title of the block to which a line belongs, line by line; empty in a table of a single block."""
    escape = latex.escape if kind == "latex" else markdown.escape
    ahead = [block.title for block in table.blocks] if len(table.blocks) > 1 else []
    title = ""
    for line in lines:
        if ahead and escape(ahead[0]) in line:
            title = ahead.pop(0)
        yield title


def _split(line: str, kind: str) -> list[str]:
    if kind == "latex":
        return line.removesuffix(" \\\\").split(" & ")
    return line.removeprefix("| ").removesuffix(" |").split(" | ")


def _bytes(table: Table) -> bytes:
    target = io.BytesIO()
    parquet.write(table, target)
    return target.getvalue()


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror}.") from error


def _parquet(content: bytes, path: Path) -> pa.Table:
    try:
        return pq.ParquetFile(io.BytesIO(content)).read()
    except pa.ArrowInvalid as error:
        raise UserError(f"{path} is no Parquet file: {error}.") from error
