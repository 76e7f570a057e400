"""What a format that is text is."""

from collections.abc import Callable
from dataclasses import dataclass

from goalgrid.results.tables.table import Table


@dataclass(frozen=True)
class TextFormat:
    """One way to write a table as text."""

    ending: str
    """Of the names of its files."""
    render: Callable[[Table], str]
    comment: str = ""
    """How the command that prints the table stands above it, `% {}`; empty in a format without comments."""
