"""Conversion of a table's text to a paper's wording: names, settings in words, and citations."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from goalgrid.results.tables import Label
from goalgrid.results.tables.notation import prose, setting_words

_REFERENCE = re.compile(r" ?\[(\d+)\]")


@dataclass(frozen=True)
class PaperWords:
    """Converts a table's text to LaTeX, with the papers' names, settings in words, and citations.

    References without a key in `cite` are omitted.
    """

    names: Mapping[str, str]
    cite: Mapping[str, str]

    def __call__(self, text: str) -> str:
        return self.latex(self.named(text))

    def label(self, label: Label) -> str:
        return label.latex or self(label.text)

    def named(self, text: str) -> str:
        """Replace names by those used in papers, and settings by words."""
        return setting_words(self._pattern.sub(lambda match: self.names[match[0]], text) if self.names else text)

    def plain(self, text: str) -> str:
        """Return the named text without references, to measure its length."""
        return _REFERENCE.sub("", self.named(text))

    def refers(self, text: str) -> bool:
        """Return whether the text contains a reference in brackets, `[12]`."""
        return _REFERENCE.search(text) is not None

    def latex(self, named: str) -> str:
        """Convert text from `named` to LaTeX."""
        parts = _REFERENCE.split(named)
        keys = (f"~\\cite{{{self.cite[number]}}}" if number in self.cite else "" for number in parts[1::2])
        return "".join(part + key for part, key in zip(map(prose, parts[::2]), [*keys, ""], strict=True))

    @cached_property
    def _pattern(self) -> re.Pattern[str]:
        known = "|".join(map(re.escape, sorted(self.names, key=len, reverse=True)))
        return re.compile(rf"(?<![\w.-])(?:{known})(?![\w-])")
