"""Who trains a trial: a lease beside its files, renewed while the process lives, so that nobody else trains it too."""

import json
import os
import threading
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
        descriptor = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY)
    except FileExistsError:
        raise Busy(f"another process trains this trial: {path.read_text(encoding='utf-8').strip()}") from None
    except OSError as error:
        raise UserError(
            f"cannot write {path}: {error.strerror}. Make room or choose another folder with --runs."
        ) from error
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        json.dump(lease_content(), file)


def _renew(path: Path, released: threading.Event) -> None:
    while not released.wait(HEARTBEAT_SECONDS):
        try:
            write_json(path, lease_content())
        except UserError:
            continue
