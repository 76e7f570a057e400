"""Cache of images decoded once and downscaled, as memory-mapped pixels shared by all trials of a node.

They stay large enough for all views. A cache folder contains {train,val,test}.npy, the concatenated pixels of all
images, and {train,val,test}.sizes.npy, the width and height of each.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Int
from PIL import Image

from goalgrid.grid.errors import UserError
from goalgrid.grid.identity import digest
from goalgrid.grid.store.files import atomic_write
from goalgrid.retrieval.data.file_slice import FileSlice
from goalgrid.retrieval.data.images import ImageFiles
from goalgrid.retrieval.data.picture_files import opened, size_of
from goalgrid.retrieval.features import BLOCK, SPLITS, Block, CachedArrays, Unit
from goalgrid.retrieval.splits.pairs import Pairs

ROOM = 1.15
"""Shorter side of a cached image divided by the side of a view; evaluation's centre crop needs 256 / 224."""

Sizes = Int[np.ndarray, "n 2"]


class ShrunkImages(ImageFiles):
    """Images of a split, read from the cache: the concatenated pixels, and the width and height of each image."""

    def __init__(self, images: ImageFiles, pixels: np.ndarray, sizes: Sizes) -> None:
        super().__init__(images.files, images.view, **images.options)
        self.pixels, self.sizes = pixels, sizes
        self.ends = (3 * sizes.prod(axis=1, dtype=np.int64)).cumsum()

    def picture(self, row: int) -> Image.Image:
        width, height = self.sizes[row].tolist()
        end = int(self.ends[row])
        return Image.frombuffer("RGB", (width, height), self.pixels[end - 3 * width * height : end], "raw", "RGB", 0, 1)


@dataclass(frozen=True)
class ShrunkPictures(CachedArrays):
    """The image files of a data set, with their fingerprint, to be cached downscaled."""

    pairs: Pairs
    images: str
    what = "bytes"

    @property
    def side(self) -> int:
        """Shorter side of cached images, in pixels; smaller images are not enlarged."""
        view = self._files("train").view
        return math.ceil(max(ROOM, view.margin or 0) * view.size)

    @property
    def title(self) -> str:
        return f"pictures of {self.name} with a shorter side of {self.side}"

    @cached_property
    def key(self) -> str:
        return digest({"images": self.images, "side": self.side})

    @property
    def folder(self) -> Path:
        """`<cache>/<data set>-shrunk-<side>-<key>`."""
        return self.cache / f"{self.name}-shrunk-{self.side}-{self.key[:12]}"

    def blocks(self, split: str) -> list[int]:
        sizes = self._sizes[split].prod(axis=1, dtype=np.int64) * 3
        return [int(sizes[start : start + BLOCK].sum()) for start in range(0, len(sizes), BLOCK)]

    def load(self, device: torch.device) -> Pairs:
        """Return the data set with cached images, after decoding missing ones."""
        folder = self.fill(device)
        arrays = {name: np.load(folder / f"{name}.npy", mmap_mode="r") for name in SPLITS}
        return Pairs(*(
            replace(split, images=ShrunkImages(self._files(name), arrays[name], self._sizes[name]))
            for name, split in self.pairs.splits.items()
        ))  # fmt: skip

    def _files(self, split: str) -> ImageFiles:
        images = self.pairs.splits[split].images
        if not isinstance(images, ImageFiles):
            raise UserError(f'dataset.cache = "shrunk" needs image files, and data set {self.name!r} has none.')
        return images

    @cached_property
    def _sizes(self) -> dict[str, Sizes]:
        """Width and height of all downscaled images, by split; computed once from the headers of all files."""
        return {name: self._sizes_of(name) for name in SPLITS}

    def _sizes_of(self, split: str) -> Sizes:
        images, path = self._files(split), self.folder / f"{split}.sizes.npy"
        if path.exists() and len(sizes := np.load(path)) == len(images):
            return sizes
        full = np.array(list(images.pool.map(size_of, images.files)))
        scale = np.minimum(1.0, self.side / full.min(axis=1, keepdims=True))
        sizes = (full * scale).round().astype(np.int32)
        with atomic_write(path) as aside, aside.open("wb") as file:
            np.save(file, sizes)
        return sizes

    def read(self, unit: Unit) -> list[Block]:
        split, (place,) = unit
        images, rows = self._files(split), slice(place * BLOCK, (place + 1) * BLOCK)
        return [tuple(images.pool.map(_shrunk, images.files[rows], self._sizes[split][rows].tolist()))]

    def rows(self, device: torch.device) -> Callable[[Block], np.ndarray]:
        return np.concatenate


def _shrunk(file: FileSlice, size: list[int]) -> np.ndarray:
    return np.asarray(opened(file).resize(size, Image.Resampling.BICUBIC)).reshape(-1)
