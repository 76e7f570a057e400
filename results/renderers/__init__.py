"""Renderers: one table, many formats, equal numbers. The dict is the list; `write` puts any of them into a file."""

from collections.abc import Callable
from pathlib import Path

from grid.files import write_text, written_aside
from results.renderers import csv, html, latex, markdown, parquet
from results.tables.table import Table

TEXT: dict[str, Callable[[Table], str]] = {
    "latex": latex.render,
    "markdown": markdown.render,
    "csv": csv.render,
    "html": html.render,
}
COMMENTS = {"latex": "% {}\n", "markdown": "<!-- {} -->\n\n", "html": "<!-- {} -->\n"}
"""How a format that has comments says by which command a table was made."""

ENDINGS = {"latex": "tex", "markdown": "md", "csv": "csv", "html": "html", "parquet": "parquet"}
FORMATS = ("terminal", *ENDINGS)


def text(table: Table, kind: str) -> str:
    """The table in a format that is text, after the command that prints it, where there is one."""
    made = COMMENTS.get(kind, "").format(f"{table.command} --format {kind}") if table.command else ""
    return made + TEXT[kind](table)


def write(table: Table, kind: str, path: Path) -> None:
    """Write the table in one format.

    Raises:
        UserError: the disk is full or read-only.
    """
    if kind == "parquet":
        with written_aside(path) as aside:
            parquet.write(table, aside)
    else:
        write_text(path, text(table, kind))


def write_all(table: Table, folder: Path) -> list[Path]:
    """Write every format beside one another, named after the layout."""
    paths = {kind: folder / f"{table.name}.{ending}" for kind, ending in ENDINGS.items()}
    for kind, path in paths.items():
        write(table, kind, path)
    return list(paths.values())
