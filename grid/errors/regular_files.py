"""Regular files: a named pipe keeps its reader waiting for ever, and a device like /dev/zero never ends."""

import errno
import os
import stat
from pathlib import Path


def check_regular(path: Path) -> None:
    """Check that a path, or what it links to, is a regular file, before it is opened."""
    mode = path.stat().st_mode
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    if not stat.S_ISREG(mode):
        raise OSError(errno.EINVAL, "it is no regular file", str(path))


def regular_bytes(path: Path) -> bytes:
    """The content of a regular file."""
    check_regular(path)
    return path.read_bytes()
