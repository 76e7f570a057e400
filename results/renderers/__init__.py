"""Renderers: write a table in any of several formats, with equal numbers in all of them."""

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
"""Text formats: one per file of this folder, HTML, and JSON (tidy rows with caption and command)."""

DATA = {"parquet": parquet.printed, "parquet-long": parquet.tidy}

ENDINGS = {**{kind: text.ending for kind, text in TEXT.items()}, "parquet-long": "long.parquet", "parquet": "parquet"}
FORMATS = ("terminal", *ENDINGS)


def format_of(path: Path) -> str | None:
    """Return the format of a file's ending (`t.tex`), or the format it names (`t.latex`); None if there is none."""
    return next((kind for kind, ending in ENDINGS.items() if path.name.endswith((f".{ending}", f".{kind}"))), None)


def format_for(path: Path, kind: str, formats: Collection[str] = tuple(ENDINGS)) -> str:
    """Return the format in which to write a file: `kind`, or, if that is "terminal", the format of the file's ending.

    If `kind` is given, the ending may be missing; .txt fits every text format, and .parquet both Parquet forms.

    Args:
        formats: the formats that the command can write.

    Raises:
        UserError: the ending belongs to no format, or does not fit `kind`.
    """
    named = format_of(path)
    named = named if named in formats else None
    if kind == "terminal":
        if named is None:
            endings = ", ".join(f".{ending}" for name, ending in ENDINGS.items() if name in formats)
            raise UserError(f"--output {path}: its ending belongs to no format. Known: {endings}; or give --format.")
        return named
    ending = ENDINGS[kind]
    usual = {"", f".{ending.rpartition('.')[2]}", f".{kind}", *([".txt"] if kind in TEXT else [])}
    if path.suffix not in usual or (named, kind) == ("parquet-long", "parquet"):
        fits = f", or give --format {named}" if named else ""
        raise UserError(f"--output {path}: its ending does not fit the format {kind}. End it in .{ending}{fits}.")
    return kind


def text(table: Table, kind: str) -> str:
    """Render the table in a text format, preceded by the command that prints it, if there is one."""
    command = " ".join(f"{table.command} --format {kind}".split("\n"))  # a caption may have lines
    comment = TEXT[kind].comment.format(command) if table.command else ""
    return comment + TEXT[kind].render(table)


def encoded(table: Table, kind: str) -> bytes:
    return parquet.encoded(DATA[kind](table)) if kind in DATA else text(table, kind).encode()


def write(table: Table, kind: str, path: Path) -> None:
    """Write the table to a file in one format; raise UserError if the disk cannot be written."""
    with atomic_write(path) as aside:
        aside.write_bytes(encoded(table, kind))


def write_all(table: Table, folder: Path) -> None:
    """Write the table in every format to a folder; files are named after the layout."""
    for kind, ending in ENDINGS.items():
        write(table, kind, folder / f"{table.name}.{ending}")
