"""Candidate hard negatives from the whole training split, ranked by a trained model before training. AOQ.

`i2t*.npy` has the most similar captions for each image, except its own; `t2i*.npy` the images for each caption.
"""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import torch
from filelock import FileLock
from jaxtyping import Float, Int
from torch import Tensor

from goalgrid.grid.errors import sha256_of
from goalgrid.retrieval.growing_array import GrowingArray
from goalgrid.retrieval.splits.pairs import DataError, Split
from goalgrid.retrieval.splits.problems import array_of

CAPTIONS, IMAGES = 2000, 400
"""Maximum number of candidates per image and per caption."""
DEPTH, PER_IMAGE = 300, 5
"""A random n < `DEPTH` selects candidate n of an image, and candidate n // `PER_IMAGE` of a caption."""
SCORES = 2**25
"""Number of similarities computed at a time."""


@dataclass(frozen=True, eq=False)
class Candidates:
    """The candidate negatives of a training split, memory-mapped: captions per image, images per caption."""

    captions: Int[np.ndarray, "i k"]
    images: Int[np.ndarray, "t m"]
    image_of_text: Int[np.ndarray, " t"]
    fingerprint: str

    @classmethod
    def open(cls, folder: Path, split: Split, fingerprint: str = "") -> "Candidates":
        """Open the candidates in a folder, in our or AOQ's format.

        Args:
            fingerprint: of the files; computed if empty.

        Raises:
            DataError: a file is missing, unreadable, or does not match the split.
        """
        paths = [_only(folder, name) for name in ("i2t", "t2i")]
        counts = len(split.images), len(split.captions)
        captions, images = _ranked(paths[0], *counts), _ranked(paths[1], *counts[::-1])
        images_of = split.image_of_text[captions[:, :DEPTH]], images[:, : DEPTH // PER_IMAGE]
        for path, of, owner in zip(paths, images_of, (np.arange(len(captions)), split.image_of_text), strict=True):
            if (wrong := (of == owner[:, None]).any(axis=1)).any():
                row = f"{path}, row {wrong.argmax():,} (from 0)"
                raise DataError(f"{row}: a candidate belongs to the row's own image. Is it from another split?")
        if not fingerprint:
            fingerprint = hashlib.sha256(b"".join(bytes.fromhex(sha256_of(path)) for path in paths)).hexdigest()
        return cls(captions, images, split.image_of_text, fingerprint)

    def draw(
        self, owners: Int[np.ndarray, " b"], texts: Int[np.ndarray, " b"], seed: int
    ) -> tuple[Int[np.ndarray, "2 b"], Int[np.ndarray, "2 b"]]:
        """Draw negatives for these pairs, with the same rank n in both directions of a pair, as in AOQ.

        Returns:
            indices of images: the drawn images, and the images of the drawn captions; indices of captions: the drawn
            captions, and one caption of each drawn image.
        """
        random = np.random.default_rng(seed)
        depth = min(DEPTH, self.captions.shape[1], PER_IMAGE * self.images.shape[1])
        n = random.integers(depth, size=len(texts))
        drawn_texts = self.captions[owners, n].astype(np.int64)
        drawn_images = self.images[texts, n // PER_IMAGE].astype(np.int64)
        order, starts, counts = self._by_image
        places = starts[drawn_images] + random.integers(counts[drawn_images])
        return np.stack([drawn_images, self.image_of_text[drawn_texts]]), np.stack([drawn_texts, order[places]])

    @cached_property
    def _by_image(self) -> tuple[Int[np.ndarray, " t"], Int[np.ndarray, " i"], Int[np.ndarray, " i"]]:
        """Return caption indices sorted by image, and each image's start and count in that order."""
        counts = np.bincount(self.image_of_text, minlength=len(self.captions))
        return np.argsort(self.image_of_text, kind="stable"), counts.cumsum() - counts, counts


def rank(
    folder: Path,
    image: Float[Tensor, "i d"],
    text: Float[Tensor, "t d"],
    image_of_text: Int[np.ndarray, " t"],
    beat: Callable[[], None] = lambda: None,
) -> None:
    """Compute and write missing candidates of a split, block by block; raise DataError for a single image."""
    if len(image) < 2:
        raise DataError("a single image has no negatives: the training split must have at least two images.")
    owners = torch.from_numpy(image_of_text).to(image.device)
    most = int(np.bincount(image_of_text).max())
    every = torch.arange(len(image), device=image.device)
    folder.mkdir(parents=True, exist_ok=True)
    with FileLock(folder / "lock"):
        _write(folder / "i2t.npy", image, text, every, owners, min(CAPTIONS, len(text) - most), beat)
        _write(folder / "t2i.npy", text, image, owners, every, min(IMAGES, len(image) - 1), beat)


def _write(
    path: Path, anchors: Tensor, others: Tensor, of: Tensor, owners: Tensor, width: int, beat: Callable[[], None]
) -> None:
    """Write for each anchor the indices of the most similar candidates of other images, best first.

    `of` and `owners` are the image indices of anchors and candidates.
    """
    if path.exists():
        return
    size = max(1, SCORES // len(others))
    blocks = torch.arange(len(anchors), device=anchors.device).split(size)
    file = GrowingArray(path, [len(rows) for rows in blocks])
    for place in sorted(file.missing):
        rows = blocks[place]
        sim = (anchors[rows].float() @ others.float().T).masked_fill_(of[rows, None] == owners, -torch.inf)
        file.write(place, sim.topk(width).indices.int().cpu().numpy())
        beat()
    file.finish()


def _only(folder: Path, name: str) -> Path:
    files = sorted(folder.glob(f"{name}*.npy"))
    if len(files) != 1:
        there = ", ".join(path.name for path in files) or "none"
        raise DataError(f"{folder} must contain exactly one file {name}*.npy with candidate negatives; found: {there}.")
    return files[0]


def _ranked(path: Path, rows: int, most: int) -> Int[np.ndarray, "n k"]:
    """Read the candidates in a file, and check that all are valid indices in the training split."""
    try:
        array = array_of(path)
    except (OSError, ValueError) as error:
        raise DataError(f"{path} cannot be read: {error}.") from error
    if array.ndim != 2 or not np.issubdtype(array.dtype, np.integer) or not array.shape[1]:
        raise DataError(
            f"{path} holds {array.dtype} of shape {array.shape}: candidates must be a 2-D array of integers."
        )
    if len(array) != rows:
        raise DataError(
            f"{path} has candidates for {len(array):,} rows; the training split has {rows:,}. Is it from another split?"
        )
    least, largest = int(array.min()), int(array.max())
    if least < 0 or largest >= most:
        wrong = largest if largest >= most else least
        raise DataError(
            f"{path} names row {wrong:,}; the training split has rows 0 to {most - 1:,}. From another split?"
        )
    return array
