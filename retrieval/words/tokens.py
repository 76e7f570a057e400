"""Encoded captions: gathered by index, cut to the longest of a batch, and in training with words left out."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, runtime_checkable

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor

MASKED, REPLACED = 0.5, 0.6
"""Size augmentation masks half of the words that it picks, replaces a tenth, and leaves out the rest. VSE-infinity."""


@dataclass(frozen=True)
class WordDropping:
    """Size augmentation of captions.

    Args:
        share: of words that it picks.
        mask: index of the mask token.
        first, last: indices between which a replacement is drawn, the last excluded.
    """

    share: float
    mask: int
    first: int
    last: int


class Tokens:
    """Captions as indices.

    Args:
        ids: padded with 0.
        words: which word of its caption each token belongs to; -1: of none that may be left out.
        drop: what gathering with a draw does; None: nothing.
    """

    def __init__(
        self,
        ids: Int[np.ndarray, "t n"],
        lengths: Int[np.ndarray, " t"],
        words: Int[np.ndarray, "t n"] | None = None,
        drop: WordDropping | None = None,
    ) -> None:
        self.ids, self.lengths, self.drop = torch.from_numpy(ids), torch.from_numpy(lengths), drop
        self.words = words

    def __len__(self) -> int:
        return len(self.lengths)

    def gather(self, rows: Int[Tensor, " b"], draw: int | None = None) -> tuple[Int[Tensor, "b n"], Int[Tensor, " b"]]:
        """Indices, padded with 0, and the number of tokens of each caption.

        Args:
            draw: seed of a training batch's augmentation; None: captions as they are.
        """
        lengths = self.lengths[rows]
        ids = self.ids[rows, : int(lengths.max())]
        if draw is None or self.drop is None:
            return ids, lengths
        assert self.words is not None
        words = self.words[rows.numpy(), : ids.shape[1]]
        return self._thinned(ids.numpy(), words, np.random.default_rng(draw), self.drop)

    @staticmethod
    def _thinned(
        ids: Int[np.ndarray, "b n"], words: Int[np.ndarray, "b n"], rng: np.random.Generator, drop: WordDropping
    ) -> tuple[Int[Tensor, "b m"], Int[Tensor, " b"]]:
        """Words are picked independently; the tokens of a word share its fate; replacements are drawn by token."""
        fate = rng.random((len(ids), int(words.max(initial=0)) + 1)) / drop.share
        of_token = np.where(words >= 0, np.take_along_axis(fate, np.maximum(words, 0), axis=1), np.inf)
        others = rng.integers(drop.first, drop.last, ids.shape)
        changed = np.where(of_token < MASKED, drop.mask, np.where(of_token < REPLACED, others, ids))
        real = ids != 0
        kept = real & ~((of_token >= REPLACED) & (of_token < 1))
        kept |= real & ~kept.any(axis=1, keepdims=True)  # a caption never vanishes
        order = np.argsort(~kept, axis=1, kind="stable")
        lengths = kept.sum(axis=1)
        packed = np.take_along_axis(np.where(kept, changed, 0), order, axis=1)[:, : lengths.max()]
        return torch.from_numpy(np.ascontiguousarray(packed)), torch.from_numpy(lengths)


@runtime_checkable
class CaptionReader(Protocol):
    """Turns captions into tokens: words by a vocabulary of our own, or the pieces of a pretrained tokenizer."""

    def __len__(self) -> int:
        """How many indices there are."""

    def encode(self, captions: Sequence[str], *, max_words: int, drop: float = 0.0) -> Tokens:
        """Captions as tokens, cut to `max_words` of them; `drop` is the share of words that training leaves out."""

    def save(self, path: Path) -> None:
        """Write what the indices mean, as JSON."""


def padded(rows: Sequence[Sequence[int]], fill: int = 0) -> tuple[Int[np.ndarray, "t n"], Int[np.ndarray, " t"]]:
    """Rows of any length as one array, and their lengths."""
    lengths = np.array([len(row) for row in rows])
    ids = np.full((len(rows), int(lengths.max(initial=1))), fill, dtype=np.int64)
    for target, row in zip(ids, rows, strict=True):
        target[: len(row)] = row
    return ids, lengths
