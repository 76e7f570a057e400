"""Who trains a trial: a lease beside its files, renewed while the process lives, so that nobody else trains it too."""

import json
import os
import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from grid.errors import UserError
from grid.files import write_json
from grid.home import HEARTBEAT_SECONDS, lease_content, lease_is_live


class Busy(Exception):
    """Another live process trains this trial."""


@contextmanager
def held(path: Path) -> Iterator[None]:
    """Hold the lease at `path` while the block runs.

    Raises:
        Busy: another live process holds it.
        UserError: the folder cannot be written.
    """
    _acquire(path)
    released = threading.Event()
    renewal = threading.Thread(target=_renew, args=(path, released), name="lease", daemon=True)
    renewal.start()
    try:
        yield
    finally:
        released.set()
        renewal.join()
        path.unlink(missing_ok=True)


def _acquire(path: Path) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.exists() and not lease_is_live(path):
            path.unlink(missing_ok=True)
        created = _create(path)
    except OSError as error:
        raise UserError(
            f"cannot write {path}: {error.strerror}. Make room or choose another folder with --runs."
        ) from error
    if not created:
        raise Busy("another process trains this trial; it is left to that one")


def _create(path: Path) -> bool:
    """Make the lease appear with its content at once; False if there is one. A link does that on shared folders too."""
    aside = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
    try:
        aside.write_text(json.dumps(lease_content()), encoding="utf-8")
        os.link(aside, path)
    except FileExistsError:
        return False
    finally:
        aside.unlink(missing_ok=True)
    return True


def _renew(path: Path, released: threading.Event) -> None:
    while not released.wait(HEARTBEAT_SECONDS):
        try:
            write_json(path, lease_content())
        except UserError:
            continue
