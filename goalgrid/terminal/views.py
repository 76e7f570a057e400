"""What a user reads: stdout carries the product, stderr the talk."""

import json
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from textwrap import wrap
from typing import TYPE_CHECKING, Any

from goalgrid.grid.groups import grouped
from goalgrid.terminal.streams import PlainConsole, plain, spelt

if TYPE_CHECKING:
    from goalgrid.results.tables import Table
    from goalgrid.runners.selftest.own_check import Verdict

_TERMINAL = False if "ipykernel" in sys.modules else None
"""A notebook says that it is a terminal, and obeys none of the codes that move a cursor. None: Rich finds out."""

out = PlainConsole(force_terminal=_TERMINAL, force_jupyter=False, emoji=False)
err = PlainConsole(force_terminal=_TERMINAL, force_jupyter=False, emoji=False, stderr=True)

LEAST_TEXT = 20
"""Columns of a text beside its name, however narrow the terminal is."""

PIPED_WIDTH = 200
"""Columns of a table where stdout is no terminal."""


def show(text: str) -> None:
    """Print a part of the product, on stdout."""
    print(plain(text), flush=True)


def setting_text(value: Any) -> str:
    """The value of a setting as TOML has it; none where there is no value."""
    if value is None or value == {}:
        return "none"
    return str(value).lower() if isinstance(value, bool) else f"{value:g}" if isinstance(value, float) else str(value)


def show_list(lines: Mapping[str, str]) -> None:
    """Print names with their texts, in a terminal no wider than it is."""
    show("\n".join(_beside(lines, out.width if out.is_terminal else None)))


def _beside(texts: Mapping[str, str], columns: int | None) -> list[str]:
    """Names with their texts beside them; a text that is too long for the columns goes on under its beginning.

    >>> _beside({"demo": "frozen-bow on shapes, 45 trials", "mine": ""}, 28)
    ['demo  frozen-bow on shapes,', '      45 trials', 'mine']
    """
    width = max(map(len, texts))
    rows = [f"{name:{width}}  {text}".rstrip() for name, text in texts.items()]
    if columns is None:
        return rows
    room, indent = max(columns, width + 2 + LEAST_TEXT), " " * (width + 2)
    return [part for row in rows for part in wrap(row, room, subsequent_indent=indent, break_on_hyphens=False)]


def say(message: str) -> None:
    """Tell the user, on stderr."""
    err.print(message, markup=False, highlight=False, soft_wrap=True)


def say_left_out(message: str) -> None:
    """Say why a file is not read, and that all else is."""
    say(f"left out: {message}")


def show_for(program: bool, content: Callable[[], Any], lines: Callable[[], Iterable[str]]) -> None:
    """Print the product as JSON for a program, or in lines for a reader."""
    if program:
        show_json(content())
    else:
        show_lines(lines())


def show_lines(lines: Iterable[str]) -> None:
    """Print lines for a reader; a line that has a break stays one line."""
    if text := "\n".join(line.replace("\n", "\\n") for line in lines):
        show(text)


def show_json(content: Any) -> None:
    """Print one JSON document."""
    show(json.dumps(content, indent=2))


def show_table(table: "Table") -> None:
    """Print a table as wide as the terminal; without a terminal, at its own width."""
    from goalgrid.results.renderers import terminal

    console = PlainConsole(width=None if out.is_terminal else PIPED_WIDTH)
    console.print(terminal.render(table, partial(spelt, encoding=console.encoding)))


def check_lines(verdicts_of: "Mapping[str, Sequence[Verdict]]") -> list[str]:
    """A line for each check of each objective; checks that end for the same reason share a line."""
    lines = []
    for name, verdicts in verdicts_of.items():
        alike = grouped(((verdict.holds, verdict.text), verdict.check) for verdict in verdicts).items()
        lines += [name, *(f"  {'ok' if ok else 'FAILED':8}{', '.join(checks)}: {text}" for (ok, text), checks in alike)]
    return lines
