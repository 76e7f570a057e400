"""Digest of a feature array, computed in one pass: which rows are equal, all zeros, or contain NaN or infinity."""

import hashlib
from base64 import b64encode
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

import numpy as np

from goalgrid.retrieval.data.file_slice import FileSlice
from goalgrid.retrieval.splits.pairs import DataError
from goalgrid.retrieval.splits.problems import Problem, array_of, shortened

BLOCK = 1 << 26
"""Number of bytes of features read at a time."""
MARK = 8
"""Number of characters of a row's hash: 48 bits in base64."""
ZEROS = "A" * MARK
"""Stands for the hash of a row of zeros."""
REPEATED = 0.9
"""Rows count as repeated for each caption if at least this share of the runs of equal rows is longer than one."""
AGAIN = "Extract the features of these images again."


@dataclass(frozen=True)
class Rows:
    """Digest of the rows of an array.

    Args:
        whole: SHA-256 of the array.
        marks: hash of each row; `ZEROS` for a row of zeros.
        unfit: indices of rows with NaN or infinity.
    """

    whole: str
    marks: Sequence[str]
    unfit: Sequence[int] = ()

    @classmethod
    def read(cls, array: np.ndarray, progress: Callable[[int], object] = lambda done: None) -> "Rows":
        """Read the whole array once; `progress` is called with the number of rows read so far."""
        summed, marks, bad = hashlib.sha256(f"{array.shape} {array.dtype}".encode()), list[str](), list[int]()
        for start, block in blocks(array):
            summed.update(block.data)
            bad += (start + np.flatnonzero(unfit(block))).tolist()
            zeros = ~block.reshape(len(block), -1).any(axis=1)
            marks += [ZEROS if zero else _mark(row) for row, zero in zip(block, np.atleast_1d(zeros), strict=True)]
            progress(start + len(block))
        return cls(summed.hexdigest(), marks, bad)

    @classmethod
    def from_text(cls, text: str) -> "Rows":
        """Parse the text that `str(rows)` returns; `unfit` is left empty."""
        whole, _, marks = text.partition(" ")
        return cls(whole, [marks[place : place + MARK] for place in range(0, len(marks), MARK)])

    def __str__(self) -> str:
        return f"{self.whole} {''.join(self.marks)}"

    def keys_of(self, images: Iterable[int]) -> list[str]:
        """Return the hashes of the images' rows; an empty string for a row of zeros, which identifies no image."""
        return ["" if self.marks[row] == ZEROS else self.marks[row] for row in images]

    @property
    def repeats(self) -> tuple[int, ...]:
        """Number of repetitions of each image's row, in order; empty if rows are not repeated.

        Runs of equal rows count as images if at least `REPEATED` of them are longer than one. If `REPEATED` of the
        runs have the same length and all other lengths are multiples of it, a longer run is several equal images.
        """
        lengths = [len(list(run)) for _, run in groupby(self.marks)]
        if not lengths or sum(length > 1 for length in lengths) < REPEATED * len(lengths):
            return ()
        usual, often = Counter(lengths).most_common(1)[0]
        if often >= REPEATED * len(lengths) and all(length % usual == 0 for length in lengths):
            return (usual,) * (len(self.marks) // usual)
        return tuple(lengths)

    def problems(self, path: Path) -> list[Problem]:
        """Report rows with NaN or infinity (a fault) and rows of zeros (a note)."""
        zeros = [row for row, mark in enumerate(self.marks) if mark == ZEROS]
        problems = [Problem(str(path), f"{_rows(self.unfit)} NaN or infinity", AGAIN)] if self.unfit else []
        problems += [Problem(str(path), f"{_rows(zeros)} zeros only", AGAIN, "note")] if zeros else []
        return problems


def _rows(numbers: Sequence[int]) -> str:
    return f"row {numbers[0]} contains" if len(numbers) == 1 else f"rows {shortened(numbers)} contain"


def finite_rows(file: Path) -> Rows:
    """Read the rows of a file; raises DataError if a value is NaN or infinite."""
    rows = Rows.read(array_of(file))
    if rows.unfit:
        raise _not_finite(file, rows.unfit[0])
    return rows


def finite_sum(file: FileSlice) -> str:
    """Return the SHA-256 of an array; raises DataError if a value is NaN or infinite."""
    array = array_of(file.path)
    summed = hashlib.sha256(f"{array.shape} {array.dtype}".encode())
    for start, block in blocks(array):
        if (bad := unfit(block)).any():
            raise _not_finite(file.path, start + int(bad.argmax()))
        summed.update(block.data)
    return summed.hexdigest()


def blocks(array: np.ndarray) -> Iterator[tuple[int, np.ndarray]]:
    """Yield blocks of rows of the array, each preceded by the index of its first row."""
    step = max(1, BLOCK // max(1, array[:1].nbytes))
    for start in range(0, len(array), step):
        yield start, np.ascontiguousarray(array[start : start + step])


def unfit(block: np.ndarray) -> np.ndarray:
    """Return a mask of the rows that contain NaN or infinity."""
    return ~np.isfinite(block).reshape(len(block), -1).all(axis=1)


def _not_finite(file: Path, row: int) -> DataError:
    return DataError(f"{file}: row {row} contains NaN or infinity. Extract the features of this image again.")


def _mark(row: np.ndarray) -> str:
    return b64encode(hashlib.sha256(row.data).digest()[:6]).decode()
