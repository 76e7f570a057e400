"""What a caption says: sentences, and what each mark means, as screens and data have them and as a paper has them."""

import itertools
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from string import ascii_lowercase


def letters() -> Iterator[str]:
    """Yield `a` to `z`, then `aa`, `ab` and on."""
    for count in itertools.count(1):
        yield from map("".join, itertools.product(ascii_lowercase, repeat=count))


@dataclass(frozen=True)
class Sentence:
    """A sentence of a caption."""

    text: str
    printed: str | None = None
    """The sentence of a paper in its place; None: the same; empty: only the author needs it."""

    @property
    def in_paper(self) -> str:
        """Text that a paper prints; empty: none."""
        return self.text if self.printed is None else self.printed


@dataclass(frozen=True)
class Legend:
    """A caption in its parts: of a paper's table, the caption is the title, and notes below the table say the rest."""

    title: Sentence
    """The title: what the table shows."""
    sentences: tuple[Sentence, ...] = ()
    shared: tuple[str, ...] = ()
    """Remarks on the training of all rows."""
    marks: Mapping[str, str] = field(default_factory=dict)
    """Meaning of each mark at a row or a number: `[a]`, the remark."""

    @classmethod
    def of(cls, title: Sentence, sentences: Iterable[Sentence | str]) -> "Legend":
        """Build a legend of these sentences, without the empty ones."""
        return cls(title).saying(*sentences)

    def saying(self, *sentences: Sentence | str) -> "Legend":
        """Return the legend with further sentences; empty ones are left out."""
        further = (Sentence(text) if isinstance(text, str) else text for text in sentences)
        more = (sentence for sentence in further if sentence.text or sentence.printed)
        return replace(self, sentences=(*self.sentences, *more))

    @property
    def text(self) -> str:
        """All of it, in one paragraph."""
        parts = [sentence.text for sentence in (self.title, *self.sentences) if sentence.text]
        parts += [f"All rows trained here: {'; '.join(self.shared)}."] if self.shared else []
        return " ".join([*parts, *(f"{mark}: {remark}." for mark, remark in self.marks.items())])
