"""Regular files: a named pipe keeps its reader waiting for ever, and a device like /dev/zero never ends."""

import errno
import os
import stat
from pathlib import Path


def check_regular(path: Path) -> None:
    """Check that a path, or what it links to, is a regular file, before it is opened.

    Raises:
        OSError: it is none, or it is not there.
    """
    if not stat.S_ISREG(path.stat().st_mode):
        code = errno.EISDIR if path.is_dir() else errno.EINVAL
        raise OSError(code, os.strerror(code) if code == errno.EISDIR else "it is no regular file", str(path))
