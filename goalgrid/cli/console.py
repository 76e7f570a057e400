"""What a user reads: stdout carries the product, stderr the talk.

What files say is untrusted, a terminal may lack letters, and no command ends with its reader.
"""

import codecs
import io
import json
import logging
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from textwrap import wrap
from typing import TYPE_CHECKING, Any, BinaryIO, TextIO, cast

from pydantic_core import to_jsonable_python
from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

from goalgrid.cli.next_steps import worded
from goalgrid.grid.errors import UserError
from goalgrid.grid.groups import grouped
from goalgrid.grid.messages import LOGGER, Note, plain

if TYPE_CHECKING:
    from goalgrid.results.tables import Table
    from goalgrid.runners.selftest.own_check import Verdict

_SPELT = {"→": "->", "−": "-", "±": "+-", "×": "x", "∞": "inf", "…": "...", "\u00a0": " "}
"""What goalgrid prints beyond ASCII, for terminals that cannot show it."""


class PlainConsole(Console):
    """A console that obeys its own codes and no codes in the texts that it prints."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        for segment in super().render(renderable, options):
            yield segment if segment.control else segment._replace(text=plain(segment.text))


def _spelt(error: UnicodeError) -> tuple[str | bytes, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    missing = error.object[error.start : error.end]
    return "".join(_SPELT.get(letter, ascii(letter)[1:-1]) for letter in missing), error.end


codecs.register_error("goalgrid", _spelt)


def spelt(text: str, encoding: str) -> str:
    """Spell out the letters that an encoding lacks, so that the text is as long as it will be when printed.

    >>> spelt("Text → Image, 0.2 ± 0.1", "latin-1")
    'Text -> Image, 0.2 ± 0.1'
    """
    return text.encode(encoding, "goalgrid").decode(encoding)


class Outlet(io.FileIO):
    """Writes all bytes to a descriptor; after a write that failed, to nowhere.

    It has no buffer: a signal's handler may write while the program does.

    `lasting`: go on after any failure; else only after the reader of a pipe is gone.
    """

    def __init__(self, descriptor: int, *, lasting: bool) -> None:
        super().__init__(descriptor, "w", closefd=False)
        self.lasting, self.lost = lasting, False

    def write(self, content: bytes | bytearray | memoryview, /) -> int:  # type: ignore[override]
        """Write all of it; UserError: the disk is full, or another failure of what is not `lasting`."""
        rest = memoryview(content).cast("B")
        while rest and not self.lost:
            try:
                rest = rest[os.write(self.fileno(), rest) :]
            except OSError as error:
                self.lost = True
                if not (self.lasting or isinstance(error, BrokenPipeError)):
                    raise UserError(f"what this command prints cannot be written: {error.strerror}.") from None
        return len(content)


def outlive_readers() -> None:
    """From now on, no command ends because nobody reads what it prints; letters that an encoding lacks are spelt.

    A command whose product is what it prints says so where that cannot be written.
    """
    # Open nowhere in place of a closed standard stream, so that no file gets its number and what is printed to it.
    while (descriptor := os.open(os.devnull, os.O_RDWR)) <= 2:
        os.set_inheritable(descriptor, True)
    os.close(descriptor)
    sys.stdout = _outlived(sys.stdout, 1, lasting=False)
    sys.stderr = _outlived(sys.stderr, 2, lasting=True)


def outlive_disks() -> None:
    """From now on, nothing that happens to stdout ends this command: its product is on the disk."""
    buffer = getattr(sys.stdout, "buffer", None)
    if isinstance(buffer, Outlet):
        buffer.lasting = True


def _outlived(stream: TextIO | None, descriptor: int, *, lasting: bool) -> TextIO:
    """Return the stream, without a buffer and with an outlet; a stream that is no descriptor stays as it is."""
    try:
        if stream:
            descriptor = stream.fileno()
            stream.flush()
    except io.UnsupportedOperation:
        return cast("TextIO", stream)
    outlet = cast("BinaryIO", Outlet(descriptor, lasting=lasting))
    return io.TextIOWrapper(outlet, stream.encoding if stream else "utf-8", "goalgrid", write_through=True)


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


def show_list(lines: Mapping[str, str]) -> None:
    """Print names with their texts, in a terminal no wider than it is."""
    show("\n".join(_beside(lines, out.width if out.is_terminal else None)))


def _beside(texts: Mapping[str, str], columns: int | None) -> list[str]:
    """Return names followed by their texts; a text that is too long for the columns goes on under its beginning.

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


def show_notes(notes: Iterable[Note]) -> None:
    """Print notes as lines of the product, for a reader."""
    show_lines(map(worded, notes))


class _Printer(logging.Handler):
    """Prints notes on stderr, with their next steps as commands."""

    def emit(self, record: logging.LogRecord) -> None:
        say(worded(record.msg) if isinstance(record.msg, Note) else record.getMessage())


@contextmanager
def printing_notes() -> Iterator[None]:
    """Print what the library reports while the block runs."""
    printer, propagate = _Printer(), LOGGER.propagate
    LOGGER.addHandler(printer)
    LOGGER.propagate = False
    try:
        yield
    finally:
        LOGGER.removeHandler(printer)
        LOGGER.propagate = propagate


def check_json(as_json: bool, format_: str) -> None:
    """Raise a UserError where --json is given with another --format."""
    if as_json and format_ not in ("terminal", "json"):
        raise UserError(f"--json and --format {format_} are two formats; leave one out.")


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
    """Print one JSON document: of a dataclass its fields; null for NaN and infinity, which JSON lacks."""
    show(json.dumps(to_jsonable_python(content, inf_nan_mode="null"), indent=2))


def show_table(table: "Table") -> None:
    """Print a table as wide as the terminal; without a terminal, at its own width."""
    from goalgrid.results.renderers import terminal

    console = PlainConsole(width=None if out.is_terminal else PIPED_WIDTH)
    console.print(terminal.render(table, partial(spelt, encoding=console.encoding), bold=out.is_terminal))


def check_lines(verdicts_of: "Mapping[str, Sequence[Verdict]]") -> list[str]:
    """Return a line for each check of each objective; checks that end for the same reason share a line."""
    lines = []
    for name, verdicts in verdicts_of.items():
        marks = ("note" if verdict.remark else "ok" if verdict.holds else "FAILED" for verdict in verdicts)
        results = (((mark, v.text), v.check) for mark, v in zip(marks, verdicts, strict=True))
        alike = grouped(results).items()
        lines += [name, *(f"  {mark:8}{', '.join(checks)}: {text}" for (mark, text), checks in alike)]
    return lines
