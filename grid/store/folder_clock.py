"""The clock of a folder's file system, used for the ages of its files because hosts' clocks may be minutes off."""

import time
from contextlib import suppress
from pathlib import Path

from goalgrid.grid.store.files import aside_of

SECONDS = 60.0
"""How long a measured offset between the clocks of a file system and this host is reused."""

_AHEAD: dict[int, tuple[float, float]] = {}
"""For each device, the seconds by which its clock is ahead of this host's, and the time of that measurement."""


def now_in(folder: Path) -> float:
    """Return the time by the clock of the folder's file system, or by this host's clock if it is not writable."""
    try:
        device = folder.stat().st_dev
        ahead, seen = _AHEAD.get(device, (0.0, -SECONDS))
        if time.monotonic() - seen >= SECONDS:
            ahead = _ahead(folder)
            _AHEAD[device] = ahead, time.monotonic()
    except OSError:
        return time.time()
    return time.time() + ahead


def _ahead(folder: Path) -> float:
    file = aside_of(folder / "clock")
    try:
        file.touch()
        return file.stat().st_mtime - time.time()
    finally:
        with suppress(OSError):
            file.unlink(missing_ok=True)
