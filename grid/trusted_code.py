"""Decide which plug-ins may run: files that this user has named in a grid file, and any file with --trust-code.

A grid is saved in its runs folder with the text of the files that it uses, and another user may own that folder.
Therefore `$XDG_STATE_HOME/goalgrid/trusted.txt` keeps digests of the paths and texts that this user has named. The file
is ignored if other users can write to it.
"""

import os
import stat
from contextlib import suppress
from hashlib import sha256
from pathlib import Path

from goalgrid.grid.errors import UserError, regular_bytes

_named: set[str] = set()
"""Digests remembered in this process, because the file may not be writable."""
_everything = False


class Untrusted(UserError):
    """A grid's code is not run, because this user has not approved it."""


def trust_everything(trusted: bool) -> None:
    """Set whether code that this user has not named may run from now on; code that runs is remembered."""
    global _everything
    _everything = trusted


def remember(*named: str) -> None:
    """Trust these paths and texts from now on, also in later processes."""
    new = [digest for digest in map(_digest, named) if digest not in _known()]
    _named.update(new)
    with suppress(OSError, RuntimeError):  # no home folder, or one that cannot be written
        if new:
            _keep(new)


def trusted(text: str) -> bool:
    """Return whether this user has named this text on this machine, or passed --trust-code."""
    return _everything or named(text)


def named(text: str) -> bool:
    """Return whether this user has named this path or text on this machine."""
    return _digest(text) in _known()


def _keep(digests: list[str]) -> None:
    """Add digests to the file, which only this user may read and write, regardless of the umask."""
    file = _file()
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    if os.path.lexists(file) and not _is_private(file):
        file.unlink()
    descriptor = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    with os.fdopen(descriptor, "w", encoding="ascii") as lines:
        lines.write("".join(f"{digest}\n" for digest in digests))


def _is_private(file: Path) -> bool:
    """Return whether the path is a regular file of this user that no other user can write to."""
    status = file.lstat()
    return (
        stat.S_ISREG(status.st_mode)
        and status.st_uid == os.getuid()
        and not status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
    )


def _known() -> set[str]:
    with suppress(OSError, RuntimeError, UnicodeDecodeError):
        if _is_private(file := _file()):
            return _named | set(regular_bytes(file).decode("ascii").split())
    return _named


def _digest(named: str) -> str:
    return sha256(named.encode(errors="surrogatepass")).hexdigest()


def _file() -> Path:
    return Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state") / "goalgrid" / "trusted.txt"
