"""Words to indices: from training captions only, in an order that does not depend on the machine."""

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor

from grid.files import write_json

UNKNOWN = 1
SPECIAL = ("<pad>", "<unk>")
"""The words of index 0 and 1."""

_WORD = re.compile(r"[a-z0-9]+(?:'[a-z]+)?")


def words(caption: str) -> list[str]:
    """Lower-case words and numbers; punctuation is dropped.

    >>> words("A dog's ball, 2 cats.")
    ['a', "dog's", 'ball', '2', 'cats']
    """
    return _WORD.findall(caption.lower())


class Vocabulary:
    """The words that occur often enough, most frequent first, ties in alphabetical order."""

    def __init__(self, known: Sequence[str]) -> None:
        self.words = [*SPECIAL, *known]
        self.index = {word: index for index, word in enumerate(self.words)}

    @classmethod
    def build(cls, captions: Iterable[str], *, min_count: int) -> "Vocabulary":
        """Count the words of these captions and keep those seen at least `min_count` times."""
        counts = Counter(word for caption in captions for word in words(caption))
        kept = [word for word, count in counts.items() if count >= min_count]
        return cls(sorted(kept, key=lambda word: (-counts[word], word)))

    def __len__(self) -> int:
        return len(self.words)

    def encode(self, captions: Sequence[str], *, max_words: int) -> "Tokens":
        """Every caption as word indices; a caption without any word becomes one unknown word."""
        rows = [
            [self.index.get(word, UNKNOWN) for word in words(caption)][:max_words] or [UNKNOWN] for caption in captions
        ]
        lengths = np.array([len(row) for row in rows])
        ids = np.zeros((len(rows), int(lengths.max(initial=1))), dtype=np.int64)
        for target, row in zip(ids, rows, strict=True):
            target[: len(row)] = row
        return Tokens(ids, lengths)

    def save(self, path: Path) -> None:
        """Write the words in order, as JSON."""
        write_json(path, self.words)


class Tokens:
    """Encoded captions, gathered by index and cut to the longest of a batch."""

    def __init__(self, ids: Int[np.ndarray, "t n"], lengths: Int[np.ndarray, " t"]) -> None:
        self.ids, self.lengths = torch.from_numpy(ids), torch.from_numpy(lengths)

    def __len__(self) -> int:
        return len(self.lengths)

    def gather(self, rows: Int[Tensor, " b"]) -> tuple[Int[Tensor, "b n"], Int[Tensor, " b"]]:
        """Word indices, padded with 0, and the number of words of each caption."""
        lengths = self.lengths[rows]
        return self.ids[rows, : int(lengths.max())], lengths
