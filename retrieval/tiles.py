"""All similarities of images and texts, each computed once, in tiles of one shape."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn.functional import pad

GRAIN = 16
"""Both sides of a tile are multiples of this: a narrower product may take another path, whose rounding differs."""


@dataclass(frozen=True, eq=False)
class Tile:
    """Similarities of some images with some texts.

    Args:
        images, texts: their places.
        right: which similarities are of a text with its own image; None: the tile holds no such pair.
    """

    images: slice
    texts: slice
    sim: Float[Tensor, "i t"]
    right: Bool[Tensor, "i t"] | None


def tiles(
    image: Float[Tensor, "i d"],
    text: Float[Tensor, "t d"],
    order: Int[Tensor, " t"],
    owner: Int[Tensor, " t"],
    chunk: int,
) -> Iterator[Tile]:
    """Every image with every text once, by tiles of `chunk` images and the texts of as many.

    Tiles of images with their own texts come first, and hold all right answers of both. All products have one shape,
    filled up with zeros, so that the rounding of a similarity depends on its two vectors alone.

    Args:
        order: rows of `text`, by the row of their image: a text's place in a tile is its place here.
        owner: row of each text's image, in this order.
    """
    height = _grained(min(chunk, len(image)))
    rows = _slices([len(block) for block in image.split(height)])
    columns = _slices(torch.bincount(owner // height, minlength=len(rows)).tolist())
    width = _grained(max(part.stop - part.start for part in columns))
    blocks = [_filled(image[part], height) for part in rows]
    described = [n for n, part in enumerate(columns) if part.stop > part.start]
    for own in (True, False):
        for n in described:
            texts = _filled(text[order[columns[n]]], width)
            for m in [n] if own else [m for m in range(len(rows)) if m != n]:
                sim = (blocks[m] @ texts.T)[: rows[m].stop - rows[m].start, : columns[n].stop - columns[n].start]
                places = torch.arange(rows[m].start, rows[m].stop, device=owner.device)
                right = owner[columns[n]] == places[:, None] if own else None
                yield Tile(rows[m], columns[n], sim, right)


def _grained(size: int) -> int:
    return -(-size // GRAIN) * GRAIN


def _slices(sizes: list[int]) -> list[slice]:
    """Parts of these sizes, one after another."""
    ends = torch.tensor([0, *sizes]).cumsum(0).tolist()
    return [slice(start, stop) for start, stop in pairwise(ends)]


def _filled(vectors: Float[Tensor, "n d"], size: int) -> Float[Tensor, "m d"]:
    return vectors if len(vectors) == size else pad(vectors, (0, 0, 0, size - len(vectors)))
