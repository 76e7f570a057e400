"""A file, or a part of one: where the bytes of an image lie. This module loads no torch."""

import hashlib
import io
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

from goalgrid.grid.errors import check_fetched

CHUNK = 1 << 20
"""Bytes hashed at a time."""


@dataclass(frozen=True, order=True)
class FileSlice:
    """`length` bytes of a file from `offset` on, as an image in a tar; without a length, the whole file.

    Args:
        label: what names the part inside its file, as the member of a tar; empty: the file's name does.
    """

    path: Path
    offset: int = 0
    length: int | None = None
    label: str = field(default="", compare=False)

    def __str__(self) -> str:
        return f"{self.path}: {self.label}" if self.label else str(self.path)

    @property
    def name(self) -> str:
        """The file name, without folders; of a part, that of its label."""
        return Path(self.label).name if self.label else self.path.name

    @property
    def bytes(self) -> int:
        """Size in bytes; OSError: there is no such file."""
        return self.path.stat().st_size if self.length is None else self.length

    def resolved(self) -> "FileSlice":
        """Return the same bytes by the path without links."""
        return FileSlice(self.path.resolve(), self.offset, self.length)

    @contextmanager
    def open(self) -> Iterator[Path | BinaryIO]:
        """Give what Pillow opens; OSError: the file is missing, is to be fetched by git-lfs, or is cut."""
        if self.length is None:
            check_fetched(self.path)
            yield self.path
            return
        with self.path.open("rb") as file:
            file.seek(self.offset)
            content = file.read(self.length)
        if len(content) < self.length:
            raise OSError(f"it ends after {len(content):,} of its {self.length:,} bytes")
        yield io.BytesIO(content)

    def sha256(self) -> str:
        """Return the SHA-256 of the bytes as 64 hexadecimal digits; OSError: they cannot be read."""
        with self.path.open("rb") as file:
            if self.length is None:
                return hashlib.file_digest(file, "sha256").hexdigest()
            file.seek(self.offset)
            summed, remaining = hashlib.sha256(), self.length
            while remaining:
                if not (chunk := file.read(min(CHUNK, remaining))):
                    raise OSError(f"it ends {remaining:,} bytes before the end of {self.label}")
                summed.update(chunk)
                remaining -= len(chunk)
            return summed.hexdigest()
