"""stdout and stderr: what files say is untrusted, a terminal may lack letters, and no command ends with its reader."""

import codecs
import io
import os
import re
import sys
from collections.abc import Iterable
from typing import BinaryIO, TextIO, cast

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

from goalgrid.grid.errors import UserError

_OBEYED = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ud800-\udfff]")
"""Control characters but tab and newline; those that change the direction of text; and halves of characters."""

_SPELT = {"→": "->", "−": "-", "±": "+-", "×": "x", "∞": "inf", "…": "...", "\u00a0": " "}
"""What goalgrid prints beyond ASCII, for terminals that cannot show it."""


def plain(text: str) -> str:
    r"""The text with escapes for characters that a terminal would obey.

    >>> plain("a name\x1b[31m")
    'a name\\x1b[31m'
    """
    return _OBEYED.sub(lambda match: ascii(match[0])[1:-1], text)


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
    """The text with the letters that the encoding lacks spelt out, so that it is as long as it will be when printed.

    >>> spelt("Text → Image, 0.2 ± 0.1", "latin-1")
    'Text -> Image, 0.2 ± 0.1'
    """
    return text.encode(encoding, "goalgrid").decode(encoding)


class Outlet(io.RawIOBase):
    """Writes all bytes to a descriptor; after a write that failed, to nowhere.

    It has no buffer: a signal's handler may write while the program does.

    `lasting`: go on after any failure; else only after the reader of a pipe is gone.
    """

    def __init__(self, descriptor: int, *, lasting: bool) -> None:
        super().__init__()
        self.descriptor, self.lasting, self.lost = descriptor, lasting, False

    def fileno(self) -> int:
        return self.descriptor

    def isatty(self) -> bool:
        return os.isatty(self.descriptor)

    def writable(self) -> bool:
        return True

    def write(self, content: bytes | bytearray | memoryview, /) -> int:  # type: ignore[override]
        """Write all of it; UserError: the disk is full, or another failure of what is not `lasting`."""
        rest = memoryview(content).cast("B")
        while rest and not self.lost:
            try:
                rest = rest[os.write(self.descriptor, rest) :]
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
    """The stream, without a buffer and with an outlet; a stream that is no descriptor stays as it is."""
    try:
        if stream:
            descriptor = stream.fileno()
            stream.flush()
    except io.UnsupportedOperation:
        return cast("TextIO", stream)
    outlet = cast("BinaryIO", Outlet(descriptor, lasting=lasting))
    return io.TextIOWrapper(outlet, stream.encoding if stream else "utf-8", "goalgrid", write_through=True)
