"""Words to indices: from training captions only, in an order that does not depend on the machine."""

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np

from grid.store.files import write_json
from retrieval.words.tokens import Tokens, WordDropping, padded

UNKNOWN = 1
SPECIAL = ("<pad>", "<unk>")
"""The words of index 0 and 1."""
BOUNDARIES = ("<start>", "<end>")
"""Of index 2 and 3, where captions are read with their boundaries."""
MASK = "<mask>"
"""The last word, where training leaves words out."""

_WORD = re.compile(r"[a-z0-9]+(?:'[a-z]+)?")


def words(caption: str) -> list[str]:
    """Lower-case words and numbers; punctuation is dropped.

    >>> words("A dog's ball, 2 cats.")
    ['a', "dog's", 'ball', '2', 'cats']
    """
    return _WORD.findall(caption.lower())


class Vocabulary:
    """The words that occur often enough, most frequent first, ties in alphabetical order.

    Args:
        boundaries: read every caption between `<start>` and `<end>`.
        masked: know a word for words that are masked.
    """

    def __init__(self, known: Sequence[str], *, boundaries: bool = False, masked: bool = False) -> None:
        self.boundaries, self.masked = boundaries, masked
        self.first = len(SPECIAL) + len(BOUNDARIES) * boundaries
        self.words = [*SPECIAL, *(BOUNDARIES if boundaries else ()), *known, *([MASK] if masked else [])]
        self.index = {word: index for index, word in enumerate(self.words)}

    @classmethod
    def build(
        cls, captions: Iterable[str], *, min_count: int, boundaries: bool = False, masked: bool = False
    ) -> "Vocabulary":
        """Count the words of these captions and keep those seen at least `min_count` times."""
        counts = Counter(word for caption in captions for word in words(caption))
        kept = [word for word, count in counts.items() if count >= min_count]
        ordered = sorted(kept, key=lambda word: (-counts[word], word))
        return cls(ordered, boundaries=boundaries, masked=masked)

    def __len__(self) -> int:
        return len(self.words)

    def encode(self, captions: Sequence[str], *, max_words: int, drop: float = 0.0) -> Tokens:
        """Every caption as word indices; a caption without any word becomes one unknown word.

        The boundaries of a caption may be left out as its words may, as VSE-infinity's code does.
        """
        rows = [self._row(caption, max_words) for caption in captions]
        ids, lengths = padded(rows)
        if not drop:
            return Tokens(ids, lengths)
        assert self.masked, "a vocabulary without a mask cannot mask"
        places = np.where(ids != 0, np.arange(ids.shape[1]), -1)
        rule = WordDropping(drop, self.index[MASK], self.first, max(len(self) - 1, self.first + 1))
        return Tokens(ids, lengths, places, rule)

    def save(self, path: Path) -> None:
        """Write the words in order, as JSON; who needs them after a power cut makes the folder durable."""
        write_json(path, self.words, durable=False)

    def _row(self, caption: str, max_words: int) -> list[int]:
        row = [self.index.get(word, UNKNOWN) for word in words(caption)][:max_words] or [UNKNOWN]
        return [self.index[BOUNDARIES[0]], *row, self.index[BOUNDARIES[1]]] if self.boundaries else row
