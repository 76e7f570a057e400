"""Images embedded in parquet files, copied once into a flat file and read from there by offset.

Random access to an image in a row group is several times slower than reading a separate file; in a flat file it is as
fast. Equal images are stored once. If the parquet files change, the copy is replaced.
"""

import hashlib
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from filelock import FileLock
from jaxtyping import Int

from goalgrid.grid.errors import UserError
from goalgrid.grid.identity import digest
from goalgrid.grid.store.files import atomic_write
from goalgrid.retrieval.data.file_slice import FileSlice

NONE = -1
"""Length stored for a row without an image."""


@dataclass(frozen=True)
class PictureCopy:
    """A flat file of images, and for each row the offset, the length and the first 56 bits of SHA-256 of its image."""

    path: Path
    rows: Int[np.ndarray, "n 3"]

    def picture(self, row: int, label: str) -> FileSlice | None:
        """Return the image of a row, labelled by its hash if `label` is empty; None if the row has no image."""
        offset, length, mark = self.rows[row].tolist()
        return None if length == NONE else FileSlice(self.path, offset, length, label or f"{mark:016x}")

    @property
    def bytes(self) -> int:
        return self.path.stat().st_size


def copied(
    files: Sequence[Path], root: Path, column: str, folder: Path, pictures: Iterable[bytes | None], size: int
) -> PictureCopy:
    """Return the copy of all images of a table column; create it if it is missing or the files have changed.

    Args:
        pictures: images of all rows of all files, in order; only consumed if the copy must be created.
        size: their approximate total size in bytes.

    Raises:
        UserError: the disk has too little free space, or cannot be written.
    """
    place = f"pictures-{digest([str(root.absolute()), column])[:12]}-"
    status = [(str(path.relative_to(root)), path.stat().st_size, path.stat().st_mtime_ns) for path in files]
    path = folder / f"{place}{digest(status)[:12]}.bin"
    index = path.with_suffix(".npy")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with FileLock(folder / f"{place}lock"):
            if not (path.exists() and index.exists()):
                for old in folder.glob(f"{place}*.*"):
                    old.unlink()
                _check_room(folder, size)
                _write(path, index, pictures)
    except OSError as error:
        raise UserError(f"images of {root} cannot be copied to {folder}: {error}") from error
    return PictureCopy(path, np.load(index))


def _check_room(folder: Path, size: int) -> None:
    if size > (free := shutil.disk_usage(folder).free):
        raise UserError(
            f"images embedded in parquet files are copied once to {folder}: this needs {size / 1e9:.1f} GB, but only "
            f"{free / 1e9:.1f} GB are free. Free space there, or choose another runs folder: --runs DIR."
        )


def _write(path: Path, index: Path, pictures: Iterable[bytes | None]) -> None:
    with atomic_write(path) as aside, aside.open("wb") as file:
        rows = np.array(list(_rows(pictures, file.write)), dtype=np.int64).reshape(-1, 3)
    with atomic_write(index) as aside, aside.open("wb") as file:
        np.save(file, rows)


def _rows(pictures: Iterable[bytes | None], write: Callable[[bytes], object]) -> Iterator[tuple[int, int, int]]:
    end, known = 0, dict[bytes, int]()
    for picture in pictures:
        if not picture:
            yield 0, NONE, 0
            continue
        summed = hashlib.sha256(picture).digest()
        if summed not in known:
            known[summed] = end
            write(picture)
            end += len(picture)
        yield known[summed], len(picture), int.from_bytes(summed[:7])
