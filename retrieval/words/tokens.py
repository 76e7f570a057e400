"""Encoded captions: gathered by index, cut to the longest of a batch, and in training with words left out."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor

MASKED, REPLACED = 0.5, 0.6
"""Size augmentation masks half of the words that it picks, replaces a tenth, and leaves out the rest. VSE-infinity."""


@dataclass(frozen=True, eq=False)
class WordDropping:
    """Size augmentation of captions.

    Args:
        share: of words that it picks.
        words: which word of its caption each token belongs to; -1: a token that stays.
        mask: index of the mask token.
        first, last: indices between which a replacement is drawn, the last excluded.
    """

    share: float
    words: Int[np.ndarray, "t n"]
    mask: int
    first: int
    last: int

    def thinned(
        self,
        ids: Int[np.ndarray, "b n"],
        lengths: Int[np.ndarray, " b"],
        rows: Int[np.ndarray, " b"],
        rng: np.random.Generator,
    ) -> tuple[Int[Tensor, "b m"], Int[Tensor, " b"]]:
        """Mask, replace or drop words that are picked independently; the tokens of a word share its fate.

        Replacements are drawn by token.
        """
        words = self.words[rows, : ids.shape[1]]
        fate = rng.random((len(ids), int(words.max(initial=0)) + 1)) / self.share
        of_token = np.where(words >= 0, np.take_along_axis(fate, np.maximum(words, 0), axis=1), np.inf)
        others = rng.integers(self.first, self.last, ids.shape)
        changed = np.where(of_token < MASKED, self.mask, np.where(of_token < REPLACED, others, ids))
        real = np.arange(ids.shape[1]) < lengths[:, None]  # 0 is a word of many tokenizers, e.g. <s> of RoBERTa
        keep = real & ~((of_token >= REPLACED) & (of_token < 1))
        keep |= real & ~keep.any(axis=1, keepdims=True)  # a caption never vanishes
        order = np.argsort(~keep, axis=1, kind="stable")
        remaining = keep.sum(axis=1)
        packed = np.take_along_axis(np.where(keep, changed, 0), order, axis=1)[:, : remaining.max()]
        return torch.from_numpy(np.ascontiguousarray(packed)), torch.from_numpy(remaining)


@dataclass(frozen=True, eq=False)
class Tokens:
    """Captions as indices, padded with 0; `drop` says what a training batch leaves out."""

    ids: Int[Tensor, "t n"]
    lengths: Int[Tensor, " t"]
    drop: WordDropping | None = None

    def __len__(self) -> int:
        return len(self.lengths)

    @property
    def width(self) -> int:
        """Values of a vector, where captions are features; 0: they are indices."""
        return 0

    def of(self, rows: Int[np.ndarray, " b"]) -> "Tokens":
        return Tokens(self.ids[rows], self.lengths[rows])

    def gather(self, rows: Int[Tensor, " b"], draw: int | None = None) -> tuple[Tensor, Int[Tensor, " b"]]:
        """Return indices, padded with 0, and each caption's length; a draw seeds a training batch's augmentation."""
        lengths = self.lengths[rows]
        ids = self.ids[rows, : int(lengths.max())]
        if draw is None or self.drop is None:
            return ids, lengths
        return self.drop.thinned(ids.numpy(), lengths.numpy(), rows.numpy(), np.random.default_rng(draw))


def padded(rows: Sequence[Sequence[int]], fill: int = 0) -> tuple[Int[Tensor, "t n"], Int[Tensor, " t"]]:
    lengths = np.array([len(row) for row in rows])
    ids = np.full((len(rows), int(lengths.max(initial=1))), fill, dtype=np.int64)
    for target, row in zip(ids, rows, strict=True):
        target[: len(row)] = row
    return torch.from_numpy(ids), torch.from_numpy(lengths)
