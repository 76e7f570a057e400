"""Captions: sentences and explanations of marks, in one version for screens and data and one for papers."""

import itertools
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from string import ascii_lowercase


def letters() -> Iterator[str]:
    """Yield `a` to `z`, then `aa`, `ab` and so on."""
    for count in itertools.count(1):
        yield from map("".join, itertools.product(ascii_lowercase, repeat=count))


@dataclass(frozen=True)
class Sentence:
    """A sentence of a caption."""

    text: str
    printed: str | None = None
    """The version for a paper; None if equal to `text`, empty if only the author needs it."""

    @property
    def in_paper(self) -> str:
        """The version for a paper; empty if it is omitted there."""
        return self.text if self.printed is None else self.printed


@dataclass(frozen=True)
class Legend:
    """The parts of a caption; in a paper, the title becomes the caption and the rest the notes below the table."""

    title: Sentence
    """The title: what the table shows."""
    sentences: tuple[Sentence, ...] = ()
    shared: tuple[str, ...] = ()
    """Remarks on the training of all rows."""
    marks: Mapping[str, str] = field(default_factory=dict)
    """The remark that each mark at a row or number, e.g. `[a]`, refers to."""

    @classmethod
    def of(cls, title: Sentence, sentences: Iterable[Sentence | str]) -> "Legend":
        """Build a legend from a title and sentences; empty sentences are omitted."""
        return cls(title).saying(*sentences)

    def saying(self, *sentences: Sentence | str) -> "Legend":
        """Return the legend with further sentences; empty ones are omitted."""
        further = (Sentence(text) if isinstance(text, str) else text for text in sentences)
        more = (sentence for sentence in further if sentence.text or sentence.printed)
        return replace(self, sentences=(*self.sentences, *more))

    @property
    def text(self) -> str:
        """The full caption, as one paragraph."""
        parts = [sentence.text for sentence in (self.title, *self.sentences) if sentence.text]
        parts += [f"All rows trained here: {'; '.join(self.shared)}."] if self.shared else []
        return " ".join([*parts, *(f"{mark}: {remark}." for mark, remark in self.marks.items())])
