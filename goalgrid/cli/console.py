"""Print for the user: results on stdout, messages on stderr.

Text from files is untrusted and is escaped; characters that a terminal lacks are spelt out in ASCII; a command goes on
after the reader of its output is gone.
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
"""ASCII spellings of the other characters that goalgrid prints, for terminals that cannot show them."""


class PlainConsole(Console):
    """A console that escapes control codes in the texts it prints."""

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
    """Spell out the characters that an encoding lacks, so that the text has the length it will have when printed.

    >>> spelt("Text → Image, 0.2 ± 0.1", "latin-1")
    'Text -> Image, 0.2 ± 0.1'
    """
    return text.encode(encoding, "goalgrid").decode(encoding)


class Outlet(io.FileIO):
    """File that writes all bytes to a descriptor, and discards everything after a failed write.

    It has no buffer, since a signal handler may write while the program does.

    `lasting`: continue after any failure; otherwise only after a broken pipe.
    """

    def __init__(self, descriptor: int, *, lasting: bool) -> None:
        super().__init__(descriptor, "w", closefd=False)
        self.lasting, self.lost = lasting, False

    def write(self, content: bytes | bytearray | memoryview, /) -> int:  # type: ignore[override]
        """Write all of it; raise UserError if that fails, e.g. on a full disk, unless `lasting` or on a broken pipe."""
        rest = memoryview(content).cast("B")
        while rest and not self.lost:
            try:
                rest = rest[os.write(self.fileno(), rest) :]
            except OSError as error:
                self.lost = True
                if not (self.lasting or isinstance(error, BrokenPipeError)):
                    raise UserError(f"cannot write this command's output: {error.strerror}.") from None
        return len(content)


def outlive_readers() -> None:
    """Replace stdout and stderr by streams that survive a closed pipe and spell out characters their encoding lacks.

    A failed write to stdout, e.g. on a full disk, still raises a UserError (see `outlive_disks`).
    """
    # Open nowhere in place of a closed standard stream, so that no file gets its number and what is printed to it.
    while (descriptor := os.open(os.devnull, os.O_RDWR)) <= 2:
        os.set_inheritable(descriptor, True)
    os.close(descriptor)
    sys.stdout = _outlived(sys.stdout, 1, lasting=False)
    sys.stderr = _outlived(sys.stderr, 2, lasting=True)


def outlive_disks() -> None:
    """Ignore all write failures of stdout from now on, for commands whose results are on the disk."""
    buffer = getattr(sys.stdout, "buffer", None)
    if isinstance(buffer, Outlet):
        buffer.lasting = True


def _outlived(stream: TextIO | None, descriptor: int, *, lasting: bool) -> TextIO:
    """Return an unbuffered stream that writes to an `Outlet`; a stream without a descriptor is returned unchanged."""
    try:
        if stream:
            descriptor = stream.fileno()
            stream.flush()
    except io.UnsupportedOperation:
        return cast("TextIO", stream)
    outlet = cast("BinaryIO", Outlet(descriptor, lasting=lasting))
    return io.TextIOWrapper(outlet, stream.encoding if stream else "utf-8", "goalgrid", write_through=True)


_TERMINAL = False if "ipykernel" in sys.modules else None
"""False in a notebook, which claims to be a terminal but ignores cursor codes; None: Rich detects it."""

out = PlainConsole(force_terminal=_TERMINAL, force_jupyter=False, emoji=False)
err = PlainConsole(force_terminal=_TERMINAL, force_jupyter=False, emoji=False, stderr=True)

LEAST_TEXT = 20
"""Minimum width of the text next to a name, in columns, however narrow the terminal is."""

PIPED_WIDTH = 200
"""Width of a table in columns if stdout is not a terminal."""


def show(text: str) -> None:
    """Print results on stdout."""
    print(plain(text), flush=True)


def show_list(lines: Mapping[str, str]) -> None:
    """Print names with their texts, wrapped at the width of the terminal."""
    show("\n".join(_beside(lines, out.width if out.is_terminal else None)))


def _beside(texts: Mapping[str, str], columns: int | None) -> list[str]:
    """Return names followed by their texts, wrapped at `columns` with a hanging indent.

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
    """Print a message on stderr."""
    err.print(message, markup=False, highlight=False, soft_wrap=True)


def show_notes(notes: Iterable[Note]) -> None:
    """Print notes on stdout, one line each."""
    show_lines(map(worded, notes))


class _Printer(logging.Handler):
    """Prints notes on stderr, with their next steps as commands."""

    def emit(self, record: logging.LogRecord) -> None:
        say(worded(record.msg) if isinstance(record.msg, Note) else record.getMessage())


@contextmanager
def printing_notes() -> Iterator[None]:
    """Print on stderr what the library logs while the block runs."""
    printer, propagate = _Printer(), LOGGER.propagate
    LOGGER.addHandler(printer)
    LOGGER.propagate = False
    try:
        yield
    finally:
        LOGGER.removeHandler(printer)
        LOGGER.propagate = propagate


def check_json(as_json: bool, format_: str) -> None:
    """Raise a UserError if --json is combined with another --format."""
    if as_json and format_ not in ("terminal", "json"):
        raise UserError(f"--json and --format {format_} contradict each other; leave one out.")


def show_for(program: bool, content: Callable[[], Any], lines: Callable[[], Iterable[str]]) -> None:
    """Print results as JSON for programs, or as lines for readers."""
    if program:
        show_json(content())
    else:
        show_lines(lines())


def show_lines(lines: Iterable[str]) -> None:
    """Print lines for a reader; line breaks within a line are escaped."""
    if text := "\n".join(line.replace("\n", "\\n") for line in lines):
        show(text)


def show_json(content: Any) -> None:
    """Print one JSON document; dataclasses become objects of their fields, NaN and infinity become null."""
    show(json.dumps(to_jsonable_python(content, inf_nan_mode="null"), indent=2))


def show_table(table: "Table") -> None:
    """Print a table at the width of the terminal, or at most `PIPED_WIDTH` columns wide if stdout is not a terminal."""
    from goalgrid.results.renderers import terminal

    console = PlainConsole(width=None if out.is_terminal else PIPED_WIDTH)
    console.print(terminal.render(table, partial(spelt, encoding=console.encoding), bold=out.is_terminal))


def check_lines(verdicts_of: "Mapping[str, Sequence[Verdict]]") -> list[str]:
    """Return one line per check of each objective; checks with the same verdict and text share a line."""
    lines = []
    for name, verdicts in verdicts_of.items():
        marks = ("note" if verdict.remark else "ok" if verdict.holds else "FAILED" for verdict in verdicts)
        results = (((mark, v.text), v.check) for mark, v in zip(marks, verdicts, strict=True))
        alike = grouped(results).items()
        lines += [name, *(f"  {mark:8}{', '.join(checks)}: {text}" for (mark, text), checks in alike)]
    return lines
