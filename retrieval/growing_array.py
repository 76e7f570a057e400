"""Arrays written block by block, as they may not fit in memory: a writer resumes after the last whole block."""

import os
from collections.abc import Sequence
from itertools import accumulate
from pathlib import Path

import numpy as np
from numpy.lib import format as npy


class GrowingArray:
    """An .npy file that grows by blocks of so many rows in `<path>.part`, each synced to disk; `finish` renames it."""

    def __init__(self, path: Path, blocks: Sequence[int]) -> None:
        self.path, self.part = path, path.with_name(path.name + ".part")
        self.blocks = list(blocks)

    def resume(self) -> int:
        """How many whole blocks the part holds; the rest of a torn block is cut off."""
        if not self.part.exists():
            return 0
        try:
            with self.part.open("rb+") as file:
                npy.read_magic(file)
                shape, _, dtype = npy.read_array_header_1_0(file)
                row = dtype.itemsize * int(np.prod(shape[1:]))
                header = file.tell()
                there = (file.seek(0, os.SEEK_END) - header) // row
                ends = [0, *accumulate(self.blocks)]
                whole = max(place for place, end in enumerate(ends) if end <= there)
                file.truncate(header + ends[whole] * row)
        except ValueError:  # cut off within the header
            self.part.unlink()
            return 0
        return whole

    def append(self, block: np.ndarray) -> None:
        with self.part.open("ab") as file:
            if not file.tell():
                shape = (sum(self.blocks), *block.shape[1:])
                descr = npy.dtype_to_descr(block.dtype)
                npy.write_array_header_1_0(file, {"descr": descr, "fortran_order": False, "shape": shape})
            file.write(np.ascontiguousarray(block).data)
            file.flush()
            os.fsync(file.fileno())

    def finish(self) -> None:
        self.part.replace(self.path)
