"""Sets of vectors: an image as its regions, a caption as its words; padding is ignored."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor


def sent(in_host: Tensor, device: torch.device) -> Tensor:
    """Copy a tensor to the device; to a GPU via pinned memory, asynchronously.

    Within `torch.compile` it is a plain copy: compiled code cannot pin memory.
    """
    if device.type != "cuda" or in_host.is_cuda or torch.compiler.is_compiling():
        return in_host.to(device)
    return in_host.pin_memory().to(device, non_blocking=True)


@dataclass(frozen=True, eq=False)
class TokenSets:
    """Images or captions, a set of vectors each.

    Args:
        vectors: unit vectors, 0 beyond a set's size.
        sizes: number of vectors of each set. In host memory for captions, which are grouped by size; on the device for
            images whose regions were dropped at random, so that the host need not wait for them.
        whole: one vector per set that represents it as a whole, if the scorer needs it.
    """

    vectors: Float[Tensor, "b n d"]
    sizes: Int[Tensor, " b"]
    whole: Float[Tensor, "b k"] | None = None

    def __len__(self) -> int:
        return len(self.sizes)

    def __getitem__(self, rows: slice | Int[Tensor, " r"]) -> "TokenSets":
        """Select sets by a slice, or by indices on the device of the vectors or in host memory."""
        of_sizes = rows if isinstance(rows, slice) else rows.to(self.sizes.device)
        return TokenSets(self.vectors[rows], self.sizes[of_sizes], None if self.whole is None else self.whole[rows])

    @classmethod
    def joined(cls, parts: Sequence["TokenSets"]) -> "TokenSets":
        whole = [part.whole for part in parts if part.whole is not None]
        sizes = torch.cat([part.sizes for part in parts])
        return cls(torch.cat([part.vectors for part in parts]), sizes, torch.cat(whole) if whole else None)

    @property
    def device(self) -> torch.device:
        return self.vectors.device

    @cached_property
    def sizes_beside(self) -> Int[Tensor, " b"]:
        return sent(self.sizes, self.device)

    @cached_property
    def present(self) -> Bool[Tensor, "b n"] | None:
        """Mask of vectors that belong to their set; None if the host knows that all do."""
        n = self.vectors.shape[1]
        if self.sizes.device.type == "cpu" and bool((self.sizes == n).all()):
            return None
        return torch.arange(n, device=self.device) < self.sizes_beside[:, None]

    def full(self) -> "TokenSets":
        """Convert half precision to float32, in which scorers and objectives compute."""
        if self.vectors.dtype not in (torch.float16, torch.bfloat16):
            return self
        return replace(self, vectors=self.vectors.float(), whole=None if self.whole is None else self.whole.float())


Embedded = Tensor | TokenSets
"""Embedded images or captions: unit vectors (b, d), or sets of them for a set scorer."""


def by_size(
    sizes: Int[Tensor, " b"], most: int, device: torch.device
) -> tuple[list[tuple[Int[Tensor, " r"], int]], Int[Tensor, " b"]]:
    """Group all rows by set size, smaller sets first, with at most `most` vectors but at least one set per group.

    Returns the rows of each group with their size, and the index of each set in the concatenated groups. Sizes are in
    host memory; the order is copied to the device in a single asynchronous copy.

    >>> groups, places = by_size(torch.tensor([2, 1, 2, 2]), 4, torch.device("cpu"))
    >>> [(rows.tolist(), size) for rows, size in groups], places.tolist()
    ([([1], 1), ([0, 2], 2), ([3], 2)], [1, 0, 2, 3])
    """
    order = sizes.argsort(stable=True)
    rows, places = sent(torch.stack([order, order.argsort()]), device)
    different, counts = (values.tolist() for values in sizes.unique(return_counts=True))
    same = zip(rows.split(counts), different, strict=True)
    return [(part, size) for whole, size in same for part in whole.split(max(1, most // size))], places


def gathered(images: Float[Tensor, "b n d"], present: Bool[Tensor, "b n"]) -> Float[Tensor, "b n d"]:
    """Move the vectors that are present to the front, in their order, followed by zeros."""
    order = (~present).to(torch.uint8).argsort(dim=1, stable=True)[..., None]
    return (images * present[..., None]).gather(1, order.expand_as(images))
