"""Fingerprints of code that an earlier process found: finding one again takes a second, since it parses all sources.

They stand in the user's cache folder, a file for each state of the sources.
"""

import json
import os
import platform
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pydantic

from goalgrid.grid.errors import UserError
from goalgrid.grid.errors.regular_files import regular_bytes
from goalgrid.grid.identity import digest
from goalgrid.grid.store.files import write_json

KEPT = 16
"""States of the sources, the latest ones."""


def known_or_found(sources: str, key: object, find: Callable[[], str]) -> str:
    """The fingerprint of these sources by this key, from the user's cache folder, else found and kept there.

    A folder or a file that cannot be read or written costs no more than the time to find the fingerprint.

    Args:
        sources: digest of everything that is parsed.
        key: what is looked for; plain values.
    """
    try:
        path = folder() / f"{digest([sources, platform.python_version(), pydantic.VERSION])}.json"
    except RuntimeError:  # this user has no home folder
        return find()
    known, entry = _read(path), digest(key)
    if entry not in known:
        known[entry] = find()
        with suppress(UserError, OSError):
            write_json(path, {"found": known, "sha256": digest(known)}, durable=False)
            latest = sorted(path.parent.glob("*.json"), key=lambda file: file.stat().st_mtime, reverse=True)
            for file in latest[KEPT:]:
                file.unlink(missing_ok=True)
    return known[entry]


def folder() -> Path:
    """`goalgrid/fingerprints` in the user's cache folder: $XDG_CACHE_HOME, else ~/.cache.

    Raises:
        RuntimeError: this user has no home folder.
    """
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "goalgrid" / "fingerprints"


def _read(path: Path) -> dict[str, str]:
    """What the file holds; nothing if it is not as it was written."""
    with suppress(OSError, ValueError, KeyError, TypeError):
        content = json.loads(regular_bytes(path))
        if content["sha256"] == digest(content["found"]):
            return dict(content["found"])
    return {}
