"""Renderers: one table, many formats, equal numbers. The folder is the list; `write` puts any of them into a file."""

import json
from collections.abc import Collection
from pathlib import Path

from goalgrid.grid.catalog import members
from goalgrid.grid.errors import UserError
from goalgrid.grid.store.files import atomic_write
from goalgrid.results.pages import page
from goalgrid.results.renderers import parquet
from goalgrid.results.tables import Table, TextFormat


def _json(table: Table) -> str:
    content = {**table.about("json"), "records": parquet.tidy(table).to_pylist()}
    return json.dumps(content, indent=1, ensure_ascii=False) + "\n"


TEXT = members(__name__, "TEXT_FORMAT", TextFormat)
TEXT |= {"html": TextFormat("html", lambda table: page("table.html", table=table), "<!-- {} -->\n")}
TEXT = dict(sorted({**TEXT, "json": TextFormat("json", _json)}.items()))
"""Formats that are text: those of the files, a page by its template, and the tidy rows with caption and command."""

DATA = {"parquet": parquet.printed, "parquet-long": parquet.tidy}

ENDINGS = {**{kind: text.ending for kind, text in TEXT.items()}, "parquet-long": "long.parquet", "parquet": "parquet"}
FORMATS = ("terminal", *ENDINGS)


def format_of(path: Path) -> str | None:
    """Return the format of a file's ending, or the one that the ending names, as t.latex; None: no format does."""
    return next((kind for kind, ending in ENDINGS.items() if path.name.endswith((f".{ending}", f".{kind}"))), None)


def format_for(path: Path, kind: str, formats: Collection[str] = tuple(ENDINGS)) -> str:
    """Return the format of a file to write: `kind`, or the one of the file's ending if `kind` is the terminal's.

    With a format, a name may lack an ending; .txt may hold what is text, and .parquet either form.

    Args:
        formats: those that the command writes.

    Raises:
        UserError: the ending says no format, or another one than `kind`.
    """
    named = format_of(path)
    named = named if named in formats else None
    if kind == "terminal":
        if named is None:
            endings = ", ".join(f".{ending}" for name, ending in ENDINGS.items() if name in formats)
            raise UserError(f"--output {path}: its ending names no format. Known: {endings}; or give --format.")
        return named
    ending = ENDINGS[kind]
    usual = {"", f".{ending.rpartition('.')[2]}", f".{kind}", *([".txt"] if kind in TEXT else [])}
    if path.suffix not in usual or (named, kind) == ("parquet-long", "parquet"):
        fits = f", or give --format {named}" if named else ""
        raise UserError(f"--output {path}: its ending does not fit the format {kind}. End it in .{ending}{fits}.")
    return kind


def text(table: Table, kind: str) -> str:
    """Write the table in a text format, after the command that prints it, if there is one."""
    command = " ".join(f"{table.command} --format {kind}".split("\n"))  # a caption may have lines
    comment = TEXT[kind].comment.format(command) if table.command else ""
    return comment + TEXT[kind].render(table)


def encoded(table: Table, kind: str) -> bytes:
    return parquet.encoded(DATA[kind](table)) if kind in DATA else text(table, kind).encode()


def write(table: Table, kind: str, path: Path) -> None:
    """Write the table in one format; a UserError where the disk takes none."""
    with atomic_write(path) as aside:
        aside.write_bytes(encoded(table, kind))


def write_all(table: Table, folder: Path) -> None:
    """Write every format into one folder, named after the layout."""
    for kind, ending in ENDINGS.items():
        write(table, kind, folder / f"{table.name}.{ending}")
