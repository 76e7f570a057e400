"""Encoded captions: gathered by index, padded to the longest of the batch, and augmented in training."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor

MASKED, REPLACED = 0.5, 0.6
"""Size augmentation masks half of the selected words, replaces a tenth, and drops the others. VSE-infinity."""


@dataclass(frozen=True, eq=False)
class WordDropping:
    """Size augmentation of captions.

    Args:
        share: share of words selected.
        words: for each token, the index of its word in the caption; -1 for tokens that are always kept.
        mask: index of the mask token.
        first, last: range of token indices for replacements, `last` excluded.
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
        """Mask, replace or drop words, selected independently; all tokens of a word are treated alike.

        Replacements are drawn per token.
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
    """Captions as token indices, padded with 0; `drop` is the augmentation of training batches, if any."""

    ids: Int[Tensor, "t n"]
    lengths: Int[Tensor, " t"]
    drop: WordDropping | None = None

    def __len__(self) -> int:
        return len(self.lengths)

    @property
    def width(self) -> int:
        """Width of the feature vectors; 0 if captions are token indices."""
        return 0

    def of(self, rows: Int[np.ndarray, " b"]) -> "Tokens":
        return Tokens(self.ids[rows], self.lengths[rows])

    def gather(self, rows: Int[Tensor, " b"], draw: int | None = None) -> tuple[Tensor, Int[Tensor, " b"]]:
        """Return token indices, padded with 0, and lengths; `draw` seeds the augmentation of a training batch."""
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
