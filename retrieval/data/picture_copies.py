"""Pictures that lie inside parquet files, copied once into one flat file, in which a picture is read by its offset.

A random picture out of a row group costs several times a file's; out of a flat file it costs the same. Equal pictures
are stored once. A copy is made again when its files change, and the old one is removed.
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
"""The length of a row without a picture."""


@dataclass(frozen=True)
class PictureCopy:
    """A flat file of pictures, and for each row offset, length and the first bits of SHA-256 of its picture."""

    path: Path
    rows: Int[np.ndarray, "n 3"]

    def picture(self, row: int, label: str) -> FileSlice | None:
        """Return the picture of a row, labelled by its SHA-256 if it has no name; None: the row has none."""
        offset, length, mark = self.rows[row].tolist()
        return None if length == NONE else FileSlice(self.path, offset, length, label or f"{mark:016x}")

    @property
    def bytes(self) -> int:
        return self.path.stat().st_size


def copied(
    files: Sequence[Path], root: Path, column: str, folder: Path, pictures: Iterable[bytes | None], size: int
) -> PictureCopy:
    """Return the copy of all pictures of a column of tables, and make it unless these files were copied as they are.

    Args:
        pictures: of all rows of all files, in their order; read only if there is no copy.
        size: bytes that they have, about.

    Raises:
        UserError: the disk has not enough room, or cannot be written.
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
        raise UserError(f"pictures of {root} cannot be copied to {folder}: {error}") from error
    return PictureCopy(path, np.load(index))


def _check_room(folder: Path, size: int) -> None:
    if size > (free := shutil.disk_usage(folder).free):
        raise UserError(
            f"pictures inside parquet files are copied once to {folder}: {size / 1e9:.1f} GB, but {free / 1e9:.1f} GB "
            "are free. Free space there, or choose another runs folder: --runs DIR."
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
