"""Fill an output folder in one go: write the files to a hidden subfolder, then move them up."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from goalgrid.grid.errors import UserError, sha256_of
from goalgrid.grid.store.files import aside_of, cannot_write, is_aside, readable_text

SUMS = "SHA256SUMS"
"""Checksums of the written files, in the format of `sha256sum`; moved up last."""
_STAGED = "export"


@contextmanager
def staged(target: Path) -> Iterator[Path]:
    """Provide a hidden folder in `target` to fill, including `SUMS`; if the block succeeds, move its files up.

    First delete what a killed process left: its hidden folder, and the files it had moved up according to its SUMS.

    Raises:
        UserError: the folder contains anything else (nothing is deleted then), or the disk fails.
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
                raise UserError(
                    f"{target / path.name} was written by another process in the meantime; give a new folder."
                )
            path.rename(target / path.name)
        staging.rmdir()
    except OSError as error:
        raise cannot_write(target, error) from error


def _clear(target: Path) -> None:
    """Delete what killed processes left in a folder; raise UserError if it contains anything else."""
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
            raise UserError(f"{target} is not empty: it contains {path.relative_to(target)}; give a new folder.")
    for path in moved:
        path.unlink()
    for folder in sorted(folders, reverse=True):
        folder.rmdir()
    for staging in unfinished:
        shutil.rmtree(staging)


def _moved(staging: Path, target: Path) -> Iterator[Path]:
    """Yield the files already moved up from a staging folder: those listed in its SUMS with the same content."""
    for line in readable_text(staging / SUMS).splitlines():
        digest, _, name = line.partition("  ")
        path = target / name
        with suppress(OSError):
            if ".." not in path.parts and path.is_file() and not path.is_symlink() and sha256_of(path) == digest:
                yield path
