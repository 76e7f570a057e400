"""A folder that a user names, filled in one go: its files are written in a hidden folder inside, and then moved up."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from goalgrid.grid.errors import UserError, sha256_of
from goalgrid.grid.store.files import aside_of, cannot_write, is_aside, readable_text

SUMS = "SHA256SUMS"
"""The list of what was written, `sha256sum` reads it; moved up last."""
_STAGED = "export"


@contextmanager
def staged(target: Path) -> Iterator[Path]:
    """Give a hidden folder in `target` to fill, `SUMS` included; when the block ends well, all of it moves up.

    What a killed process left is deleted first: its hidden folder, and the files that it had moved up, as its SUMS
    lists them. UserError: anything else is in the folder, of which nothing is deleted then; or the disk fails.
    """
    try:
        _clear(target)
        staging = aside_of(target / _STAGED)
        staging.mkdir(parents=True)
        try:
            yield staging
        except BaseException:
            shutil.rmtree(staging, ignore_errors=True)
            raise
        for path in sorted(staging.iterdir(), key=lambda path: path.name == SUMS):
            if os.path.lexists(target / path.name):
                raise UserError(f"{target / path.name} was written meanwhile; give a new folder.")
            path.rename(target / path.name)
        staging.rmdir()
    except OSError as error:
        raise cannot_write(target, error) from error


def _clear(target: Path) -> None:
    """Delete what killed processes left in a folder; UserError: it holds anything else."""
    if os.path.lexists(target) and not target.is_dir():
        raise UserError(f"{target} is a file; give a new folder.")
    entries = sorted(target.iterdir()) if target.is_dir() else []
    unfinished = [
        path for path in entries if is_aside(path) and path.name.startswith(f".{_STAGED}.") and not path.is_symlink()
    ]
    moved = {path for staging in unfinished for path in _moved(staging, target)}
    folders = {
        folder for path in moved for folder in path.parents if folder.is_relative_to(target) and folder != target
    }
    for path in entries if not unfinished else target.rglob("*"):
        if path not in moved | folders and not any(path.is_relative_to(staging) for staging in unfinished):
            raise UserError(f"{target} is not empty, it has {path.relative_to(target)}; give a new folder.")
    for path in moved:
        path.unlink()
    for folder in sorted(folders, reverse=True):
        folder.rmdir()
    for staging in unfinished:
        shutil.rmtree(staging)


def _moved(staging: Path, target: Path) -> Iterator[Path]:
    """The files that were moved up from a staging folder: those that its SUMS lists, with the same content."""
    for line in readable_text(staging / SUMS).splitlines():
        digest, _, name = line.partition("  ")
        path = target / name
        with suppress(OSError):
            if ".." not in path.parts and path.is_file() and not path.is_symlink() and sha256_of(path) == digest:
                yield path
