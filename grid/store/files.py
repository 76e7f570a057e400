"""Writing files so that a reader sees the old or the new content, never a half: aside, fsync, rename.

Files that only count together are written without the flush (`durable=False`), and flushed at once by `make_durable`.
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
"""Names that `aside_of` gives; SQLite adds endings to that of a database."""

NO_LINKS = errno.ENOTSUP
"""Number of an error: the file system lacks what the runs folder needs, and more room does not help."""

_FENCES: dict[Path, Callable[[], None]] = {}
"""By folder: the check before this process writes there."""


@contextmanager
def fenced(folder: Path, check: Callable[[], None]) -> Iterator[None]:
    """Run `check` before each file of this folder gets its name during the block; `check` raises to forbid it.

    A process may be suspended between the check and the renaming, and be replaced meanwhile. So the process that
    replaces it first claims the folder, by what `check` reads, and then removes all files that were written aside. A
    file aside that passed the check before the claim is thus gone, and renaming it fails.
    """
    _FENCES[folder] = check
    try:
        yield
    finally:
        if _FENCES.get(folder) == check:  # else another thread holds the folder by now
            del _FENCES[folder]


def _unfenced() -> None:
    """The check of a folder in which every process may write."""


def exists(path: Path) -> bool:
    """Return whether the file exists; False if the disk fails."""
    return os.path.exists(path)  # noqa: PTH110 - `Path.exists` raises what the disk says


@contextmanager
def atomic_write(path: Path, *, durable: bool = True, previous: Path | None = None) -> Iterator[Path]:
    """Give a path next to `path` to create; when the block ends well, it becomes `path` in one step, else UserError.

    Unless it is `durable`, a power cut may remove or empty it. The earlier file at `path` becomes `previous`, if that
    is given; after an error it is untouched.
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
    """Replace the file's content by one JSON object a line."""
    write_text(path, "".join(json.dumps(row, sort_keys=True) + "\n" for row in rows), durable=durable)


def make_durable(folder: Path) -> None:
    """Wait until a folder and its files are on the disk, without subfolders and without unfinished temporary files.

    `syncfs` would wait for what all processes write to that disk. The file system joins flushes that are asked for at
    once, so threads ask: one after the other they take three times as long.

    UserError: the disk failed.
    """
    try:
        files = [file for file in folder.iterdir() if file.is_file() and not file.name.startswith(".")]
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(_sync, [*files, folder, folder.parent]))
    except OSError as error:
        raise cannot_write(folder, error) from error


def flush(file: Path) -> None:
    """Wait until one file is on the disk, in a folder whose other files a thread may be replacing.

    UserError: the disk failed.
    """
    try:
        for path in (file, file.parent):
            _sync(path)
    except OSError as error:
        raise cannot_write(file, error) from error


def cannot_write(path: Path, error: OSError, consequence: str = "") -> UserError:
    """Build the error for a disk that is full, read-only or not the user's, and for a file in place of a folder."""
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
    """Say how users share a folder, where the nearest that is readable is another user's; else an empty string."""
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
    """Make a file appear with its content at once; False if it exists. A link does that on shared folders, too.

    OSError: the disk is full or read-only, or has no hard links.
    """
    return create(path, lambda aside: aside.write_text(text, encoding="utf-8"), durable=durable)


def create(path: Path, make: Callable[[Path], object], *, durable: bool = False) -> bool:
    """Make a file aside, let it appear at once; False if another process was first; OSError: as of `create_text`."""
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
    """Raises OSError; of a file system without hard links, NO_LINKS with a text that says so."""
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
    """Yield the objects of a JSON Lines file, without its damaged lines; none if the file cannot be read."""
    try:
        lines = regular_bytes(path).split(b"\n")
    except OSError:
        return
    for line in reversed(lines) if last_first else lines:
        with suppress(ValueError):
            if isinstance(row := parsed_json(line), dict):
                yield row


def readable_text(path: Path) -> str:
    """Read a text for people, with a replacement character for every byte that is not UTF-8; empty without a file."""
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
    """Return whether this is the name of a file or folder written aside, which nothing but this program gives."""
    return bool(_ASIDE.fullmatch(path.name))


def aside_of(path: Path) -> Path:
    """Return a unique hidden name next to a file, which begins with the file's name."""
    return path.with_name(f".{path.name}.{uuid.uuid4().hex}")
