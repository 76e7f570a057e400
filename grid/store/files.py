"""Write files atomically: to a temporary file, then fsync and rename, so readers see the old or the new content.

Files that are only valid together are written with `durable=False`, and then flushed together by `make_durable`.
"""

import errno
import json
import os
import pwd
import re
import stat
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from goalgrid.grid.errors import UserError, parsed_json, regular_bytes

_ASIDE = re.compile("[.].+[.][0-9a-f]{32}(-journal|-shm|-wal)?")
"""Names made by `aside_of`; SQLite appends suffixes to the name of a database."""

NO_LINKS = errno.ENOTSUP
"""The errno of a file system without hard links, which the runs folder needs."""

_FENCES: dict[Path, Callable[[], None]] = {}
"""For each folder, the check to run before this process writes there."""


@contextmanager
def fenced(folder: Path, check: Callable[[], None]) -> Iterator[None]:
    """During the block, run `check` before any file of this folder is renamed into place; `check` raises to forbid it.

    A process may be suspended between check and rename, and be replaced in the meantime. Therefore the replacing
    process first claims the folder in a way that `check` detects, and then deletes all temporary files. If a temporary
    file passed the check before the claim, renaming it fails, because the file is gone.
    """
    _FENCES[folder] = check
    try:
        yield
    finally:
        if _FENCES.get(folder) == check:  # else another thread holds the folder by now
            del _FENCES[folder]


def _unfenced() -> None:
    """The check of a folder without a fence: does nothing."""


def exists(path: Path) -> bool:
    """Return whether the file exists; False if the disk fails."""
    return os.path.exists(path)  # noqa: PTH110 - `Path.exists` raises what the disk says


@contextmanager
def atomic_write(path: Path, *, durable: bool = True, previous: Path | None = None) -> Iterator[Path]:
    """Yield a temporary path to write; when the block succeeds, rename it to `path` atomically.

    Args:
        durable: flush to disk; otherwise, the file may be lost or empty after a power cut.
        previous: new name of the earlier file at `path`; default: it is replaced.

    Raises:
        UserError: the file cannot be written; the earlier file at `path` is then unchanged.
    """
    aside, check = aside_of(path), _FENCES.get(path.parent, _unfenced)
    try:
        check()  # no folder is made, and nothing large written, for nothing
        path.parent.mkdir(parents=True, exist_ok=True)
        yield aside
        if durable:
            _sync(aside)
        check()
        if previous is not None and path.exists():
            path.replace(previous)
        aside.replace(path)
        if durable:
            _sync(path.parent)
    except BaseException as error:
        with suppress(OSError):
            aside.unlink(missing_ok=True)
        if not isinstance(error, OSError):
            raise
        check()  # a file aside that another process removed is no fault of the disk
        raise cannot_write(path, error, "What was there before is untouched. ") from error


def write_text(path: Path, text: str, *, durable: bool = True) -> None:
    """Replace the file's content, in UTF-8."""
    with atomic_write(path, durable=durable) as aside:
        aside.write_text(text, encoding="utf-8")


def write_json(path: Path, value: Any, *, durable: bool = True) -> None:
    """Replace the file's content by readable JSON with sorted keys."""
    write_text(path, json.dumps(value, indent=2, sort_keys=True, allow_nan=False) + "\n", durable=durable)


def write_json_lines(path: Path, rows: list[dict[str, Any]], *, durable: bool = True) -> None:
    """Replace the file's content by JSON Lines, one object per line."""
    write_text(path, "".join(json.dumps(row, sort_keys=True) + "\n" for row in rows), durable=durable)


def make_durable(folder: Path) -> None:
    """Flush a folder and its files to disk, except subfolders and temporary files.

    Files are flushed in threads, because the file system merges concurrent flushes, which is three times as fast.
    `syncfs` would also wait for the writes of other processes.

    Raises:
        UserError: the disk failed.
    """
    try:
        files = [file for file in folder.iterdir() if file.is_file() and not file.name.startswith(".")]
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(_sync, [*files, folder, folder.parent]))
    except OSError as error:
        raise cannot_write(folder, error) from error


def flush(file: Path) -> None:
    """Flush one file to disk; other threads may be replacing other files of its folder.

    Raises:
        UserError: the disk failed.
    """
    try:
        for path in (file, file.parent):
            _sync(path)
    except OSError as error:
        raise cannot_write(file, error) from error


def cannot_write(path: Path, error: OSError, consequence: str = "") -> UserError:
    """Build the error for a full or read-only disk, missing permissions, or a file in place of a folder."""
    a_file = isinstance(error, FileExistsError | NotADirectoryError)
    reason = "a file is in the place of its folder" if a_file else error.strerror or error
    consequence += _of_a_colleague(path) if error.errno == errno.EACCES else ""
    if error.errno == NO_LINKS:
        return UserError(
            f"cannot write {path}: {reason}. {consequence}"
            "Choose another folder (of trials: --runs), then run the same command again to continue."
        )
    return UserError(
        f"cannot write {path}: {reason}. {consequence}"
        "Make room or choose another folder (of trials: --runs), then run the same command again to continue."
    )


def _of_a_colleague(path: Path) -> str:
    """Advice on sharing a folder if the nearest readable one belongs to another user; else an empty string."""
    for place in (path.absolute(), *path.absolute().parents):
        with suppress(OSError):
            owner = place.stat().st_uid
            break
    if owner == os.geteuid():
        return ""
    try:
        name = pwd.getpwuid(owner).pw_name
    except KeyError:  # a user of another machine
        name = str(owner)
    return (
        f"{place} belongs to {name}. To share a runs folder, its folders need a group of both users, chmod g+rwxs "
        "(setgid), and both users umask 002. "
    )


def create_text(path: Path, text: str, *, durable: bool = False) -> bool:
    """Create a file atomically with its content, by a hard link; return False if it exists.

    Raises:
        OSError: the disk is full or read-only, or its file system has no hard links.
    """
    return create(path, lambda aside: aside.write_text(text, encoding="utf-8"), durable=durable)


def create(path: Path, make: Callable[[Path], object], *, durable: bool = False) -> bool:
    """Create a file atomically; return False if another process was first; raise an OSError as `create_text` does."""
    aside, check = aside_of(path), _FENCES.get(path.parent, _unfenced)
    try:
        make(aside)
        if durable:
            _sync(aside)
        check()
        _link(aside, path)
        if durable:
            _sync(path.parent)
    except FileExistsError:
        return False
    finally:
        with suppress(OSError):  # the file exists by now; a later attempt removes the hidden one
            aside.unlink(missing_ok=True)
    return True


def _link(aside: Path, path: Path) -> None:
    """Create a hard link; raises an OSError, with number NO_LINKS if the file system has no hard links."""
    try:
        os.link(aside, path)
    except OSError as error:
        if error.errno in (errno.EPERM, errno.ENOTSUP, errno.ENOSYS):
            raise OSError(NO_LINKS, "its file system has no hard links, which processes need to lock trials") from error
        raise


def read_json(path: Path) -> dict[str, Any]:
    """Read the object in a JSON file; empty if the file is missing or damaged."""
    try:
        content = parsed_json(regular_bytes(path))
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}


def json_lines(path: Path, *, last_first: bool = False) -> Iterator[dict[str, Any]]:
    """Yield the objects of a JSON Lines file, skipping damaged lines; yield nothing if the file is unreadable."""
    try:
        lines = regular_bytes(path).split(b"\n")
    except OSError:
        return
    for line in reversed(lines) if last_first else lines:
        with suppress(ValueError):
            if isinstance(row := parsed_json(line), dict):
                yield row


def readable_text(path: Path) -> str:
    """Read a text, with a replacement character for each invalid UTF-8 byte; empty if the file is missing."""
    try:
        return regular_bytes(path).decode(errors="replace")
    except OSError:
        return ""


def bytes_below(folder: Path) -> int:
    """Sum the bytes of the regular files in a folder and below; files that cannot be read count as 0."""
    total = 0
    for place, _, names in os.walk(folder):
        for name in names:
            with suppress(OSError):
                status = os.lstat(f"{place}/{name}")
                total += status.st_size * stat.S_ISREG(status.st_mode)
    return total


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def is_aside(path: Path) -> bool:
    """Return whether this is the name of a temporary file or folder of goalgrid."""
    return bool(_ASIDE.fullmatch(path.name))


def aside_of(path: Path) -> Path:
    """Return a unique hidden temporary path next to a file, with a name derived from the file's."""
    return path.with_name(f".{path.name}.{uuid.uuid4().hex}")
