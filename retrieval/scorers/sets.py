"""Sets of vectors: an image as its regions, a caption as its words; padding never counts."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor


@dataclass(frozen=True, eq=False)
class Sets:
    """Images or captions, a set of vectors each.

    Args:
        vectors: unit vectors, 0 beyond a set's size.
        sizes: how many vectors each set has, in host memory.
        whole: a vector of each whole set, where the scorer reads it.
    """

    vectors: Float[Tensor, "b n d"]
    sizes: Int[Tensor, " b"]
    whole: Float[Tensor, "b k"] | None = None

    def __len__(self) -> int:
        return len(self.sizes)

    def __getitem__(self, rows: slice | Int[Tensor, " r"]) -> "Sets":
        """These sets; rows as a slice, or as indices on the device of the vectors or in host memory."""
        of_host = rows if isinstance(rows, slice) else rows.cpu()
        return Sets(self.vectors[rows], self.sizes[of_host], None if self.whole is None else self.whole[rows])

    @classmethod
    def joined(cls, parts: Sequence["Sets"]) -> "Sets":
        """The sets of all parts, of one width."""
        whole = [part.whole for part in parts if part.whole is not None]
        sizes = torch.cat([part.sizes for part in parts])
        return cls(torch.cat([part.vectors for part in parts]), sizes, torch.cat(whole) if whole else None)

    @property
    def device(self) -> torch.device:
        return self.vectors.device

    @property
    def present(self) -> Bool[Tensor, "b n"] | None:
        """Which vectors belong to their set; None where all do."""
        n = self.vectors.shape[1]
        if bool((self.sizes == n).all()):
            return None
        return torch.arange(n, device=self.device) < self.sizes.to(self.device)[:, None]

    def full(self) -> "Sets":
        """The same in float32, if it is in half precision: scorers compute in float32, as objectives do."""
        if self.vectors.dtype not in (torch.float16, torch.bfloat16):
            return self
        return replace(self, vectors=self.vectors.float(), whole=None if self.whole is None else self.whole.float())


class SameSize(NamedTuple):
    """Rows of sets that all have `size` vectors."""

    rows: Int[Tensor, " r"]
    size: int


def by_size(sizes: Int[Tensor, " b"], most: int) -> Iterator[SameSize]:
    """All rows, the smaller sets first, in groups of one size with at most so many vectors, one set at least.

    >>> [(group.rows.tolist(), group.size) for group in by_size(torch.tensor([2, 1, 2, 2]), 4)]
    [([1], 1), ([0, 2], 2), ([3], 2)]
    """
    for size in sizes.unique().tolist():
        rows = (sizes == size).nonzero()[:, 0]
        for part in rows.split(max(1, most // size)):
            yield SameSize(part, size)


def gathered(images: Float[Tensor, "b n d"], present: Bool[Tensor, "b n"] | None) -> Float[Tensor, "b n d"]:
    """The vectors that are present first, in their order, then zeros."""
    if present is None:
        return images
    order = (~present).to(torch.uint8).argsort(dim=1, stable=True)[..., None]
    return (images * present[..., None]).gather(1, order.expand_as(images))
