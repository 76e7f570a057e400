"""Location of an image's bytes: a whole file or a part of one. This module does not import torch."""

import hashlib
import io
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

from goalgrid.grid.errors import check_fetched

CHUNK = 1 << 20
"""Number of bytes hashed at a time."""


@dataclass(frozen=True, order=True)
class FileSlice:
    """`length` bytes of a file from `offset` on, e.g. an image in a tar; without a length, the whole file.

    Args:
        label: name of the part inside its file, e.g. a member of a tar; empty for a whole file.
    """

    path: Path
    offset: int = 0
    length: int | None = None
    label: str = field(default="", compare=False)

    def __str__(self) -> str:
        return f"{self.path}: {self.label}" if self.label else str(self.path)

    @property
    def name(self) -> str:
        """File name without folders; for a part of a file, taken from its label."""
        return Path(self.label).name if self.label else self.path.name

    @property
    def bytes(self) -> int:
        """Size in bytes; raises OSError if there is no such file."""
        return self.path.stat().st_size if self.length is None else self.length

    def resolved(self) -> "FileSlice":
        """Return this slice with all links in its path resolved."""
        return FileSlice(self.path.resolve(), self.offset, self.length)

    @contextmanager
    def open(self) -> Iterator[Path | BinaryIO]:
        """Yield a path or stream for Pillow.

        Raises OSError if the file is missing, truncated, or a git-lfs pointer.
        """
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
        """Return the SHA-256 of the bytes as 64 hexadecimal digits; raises OSError if they are unreadable."""
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
