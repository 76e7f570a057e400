"""Precomputed features, opened: one row per image, read from memory-mapped arrays as they are on disk."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from goalgrid.retrieval.data import precomp_files
from goalgrid.retrieval.data.precomp_files import check_finite
from goalgrid.retrieval.splits.pairs import WHOLE, Pairs, Split

SCAN_BYTES = 1 << 30
"""Arrays up to this size are searched for NaN when they are opened; larger ones batch by batch, as they are read."""


class Features:
    """Rows of a memory-mapped .npy; `rows[i]` is where image i stands in the file."""

    def __init__(self, path: Path, array: np.ndarray, rows: Int[np.ndarray, " i"]) -> None:
        self.path, self.array, self.rows = path, array, rows
        if array.nbytes <= SCAN_BYTES:
            for start in range(0, len(array), 4096):
                check_finite(path, array[start : start + 4096], np.arange(start, min(start + 4096, len(array))))

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.array.shape[1:])

    def __len__(self) -> int:
        return len(self.rows)

    def gather(
        self, rows: Int[np.ndarray, " b"], draw: int | None = None, part: slice = WHOLE
    ) -> Float[Tensor, "p *shape"]:
        """Read these images' features as they are on disk; the encoder casts.

        Raises:
            DataError: a value is NaN or infinite.
        """
        places = self.rows[rows[part]]
        block = self.array[places]
        if self.array.nbytes > SCAN_BYTES:
            check_finite(self.path, block, places)
        return torch.from_numpy(block)


def load(root: Path, *, test_splits: Sequence[str] = ("test",)) -> Pairs:
    """Open the three splits under `root`.

    Raises:
        DataError: a file is missing or unreadable, or captions and images do not match in number.
    """
    return Pairs(*(_split(root, name) for name in precomp_files.splits(root, test_splits).values()))


def _split(root: Path, name: str) -> Split:
    array, rows, captions, image_of_text, _ = precomp_files.aligned(root, name)
    return Split(Features(root / f"{name}_ims.npy", array, rows), captions, image_of_text)
