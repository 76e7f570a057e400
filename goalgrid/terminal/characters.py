"""Characters that a terminal can show: what files say is untrusted, and not every terminal knows every letter."""

import codecs
import io
import re
from collections.abc import Iterable
from typing import TextIO

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

_OBEYED = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ud800-\udfff]")
"""Control characters but tab and newline; those that change the direction of text; and halves of characters."""

_SPELT = {"→": "->", "−": "-", "±": "+-", "×": "x", "∞": "inf", "…": "...", "\u00a0": " "}
"""What goalgrid prints beyond ASCII, for terminals that cannot show it."""


def plain(text: str) -> str:
    r"""The text with escapes for characters that a terminal would obey.

    >>> plain("a name\x1b[31m")
    'a name\\x1b[31m'
    """
    return _OBEYED.sub(lambda found: ascii(found[0])[1:-1], text)


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


def spell_out(*streams: TextIO) -> None:
    """From now on, these streams spell characters out that their encoding lacks."""
    codecs.register_error("goalgrid", _spelt)
    for stream in streams:
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="goalgrid")
