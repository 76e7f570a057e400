"""Arrays written to disk block by block, since they may not fit in memory; an interrupted writer can resume."""

import os
from collections.abc import Sequence
from itertools import accumulate
from pathlib import Path

import numpy as np
from numpy.lib import format as npy

from goalgrid.grid.store.files import readable_text


class GrowingArray:
    """An .npy file written in blocks, in any order, as `<path>.part`, and renamed by `finish`.

    `blocks`: number of rows of each block. `<path>.blocks` lists the blocks that are synced to disk. All rows have the
    same shape.
    """

    def __init__(self, path: Path, blocks: Sequence[int]) -> None:
        self.path, self.part = path, path.with_name(path.name + ".part")
        self.journal, self.blocks = path.with_name(path.name + ".blocks"), list(blocks)
        self.starts = [0, *accumulate(blocks)]
        self.missing = set(range(len(self.blocks))) - self._resume()
        """Indices of the blocks still to be written."""

    def _resume(self) -> set[int]:
        """Return the complete blocks in the partial file; delete it if there are none."""
        whole = set[int]()
        if self.part.is_file():
            *lines, _ = readable_text(self.journal).split("\n")  # the last line may be torn
            rows, places = self._rows(), {int(line) for line in lines if line.isdecimal()}
            whole = {place for place in places.intersection(range(len(self.blocks))) if self.starts[place + 1] <= rows}
        if whole:
            self.journal.write_text("".join(f"{place}\n" for place in whole), encoding="ascii")
        else:
            for path in (self.part, self.journal):
                path.unlink(missing_ok=True)
        return whole

    def _rows(self) -> int:
        """Return the number of rows for which the partial file is long enough."""
        try:
            with self.part.open("rb") as file:
                npy.read_magic(file)
                shape, _, dtype = npy.read_array_header_1_0(file)
                header = file.tell()
                return int((file.seek(0, os.SEEK_END) - header) // (dtype.itemsize * int(np.prod(shape[1:]))))
        except ValueError:  # cut off within the header
            return 0

    def write(self, place: int, block: np.ndarray) -> None:
        with self.part.open("r+b" if self.part.exists() else "w+b") as file:
            shape, descr = (self.starts[-1], *block.shape[1:]), npy.dtype_to_descr(block.dtype)
            npy.write_array_header_1_0(file, {"descr": descr, "fortran_order": False, "shape": shape})
            file.seek(self.starts[place] * block[:1].nbytes, os.SEEK_CUR)
            file.write(np.ascontiguousarray(block).data)
            file.flush()
            os.fsync(file.fileno())
        with self.journal.open("a", encoding="ascii") as journal:
            journal.write(f"{place}\n")
            journal.flush()
            os.fsync(journal.fileno())
        self.missing.discard(place)

    def finish(self) -> None:
        self.part.replace(self.path)
        self.journal.unlink(missing_ok=True)
