"""The mirror, which copies trials to an experiment tracker in a background thread; and the tracker interface.

Trial folders are authoritative. If a tracker is down, the mirror warns and catches up later; trials are not affected.
"""

import queue
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

from goalgrid.grid.errors import counted
from goalgrid.grid.store.files import read_json, readable_text
from goalgrid.grid.store.home import TrialFolder
from goalgrid.grid.syntax import flat
from goalgrid.results.records import record

RETRY_SECONDS = 30.0
"""Seconds to wait before writing to a tracker again after a failure."""

GATHER_SECONDS = 5.0
"""Seconds in which the mirror collects reports, so that a trial that reports twice is copied once."""


class Store(ABC):
    """An open tracker, with at most one run per trial."""

    @abstractmethod
    def sync(self, folder: TrialFolder) -> None:
        """Copy the epochs and results that are missing in the trial's run."""

    def close(self) -> None:  # noqa: B027
        """Close the connection and open files."""


class Tracker(ABC):
    """An experiment tracker, e.g. MLflow."""

    name: str
    place: Path | str
    """Folder or address of the copies."""

    @abstractmethod
    def open(self) -> Store: ...

    @abstractmethod
    def lacking(self, folders: Iterable[TrialFolder]) -> list[TrialFolder]:
        """Return the finished trials that are not recorded as copied."""

    def public(self, text: str) -> str:
        """Redact this tracker's credentials in a text."""
        return text

    @property
    def copies(self) -> Path | None:
        """Return the local file or folder of the copies, recreated if missing; None if they are on a server."""
        return self.place if isinstance(self.place, Path) else None


class Mirror:
    """Copies trials to a tracker in the background; warns at the first failure, and if it persists at the end."""

    def __init__(self, tracker: Tracker, warn: Callable[[str], None]) -> None:
        self.tracker, self.warn = tracker, warn
        self._waiting: queue.Queue[TrialFolder | None] = queue.Queue()
        self._behind: dict[TrialFolder, None] = {}
        """Folders with content not yet in the tracker."""
        self._store: Store | None = None
        self._failed_at: float | None = None
        self._thread = threading.Thread(target=self._work, name=tracker.name, daemon=True)
        self._thread.start()

    def sync(self, folder: TrialFolder) -> None:
        """Queue a trial folder to be copied."""
        self._waiting.put(folder)

    def close(self) -> None:
        """Wait until everything is copied or the tracker fails again."""
        self._waiting.put(None)
        self._thread.join()

    def _work(self) -> None:
        going = True
        while going:
            going = self._gather()
            if self._failed_at is None or time.monotonic() - self._failed_at > RETRY_SECONDS:
                self._catch_up()
        if self._behind and not self._catch_up():
            missing = f"{counted(len(self._behind), 'trial')} not copied to {self.tracker.name}"
            if copies := self.tracker.copies:
                self.warn(
                    f"{missing}; the next run of this grid copies what is missing; if {copies} is damaged, remove it: "
                    "that run recreates it from the records"
                )
            else:
                self.warn(f"{missing}; the next run of this grid copies what is missing")
        if self._store:
            self._store.close()

    def _gather(self) -> bool:
        """Wait for a trial's report, then briefly for others; return False once the mirror is closed."""
        folder = self._waiting.get()
        until = time.monotonic() + GATHER_SECONDS
        while folder is not None:
            self._behind[folder] = None
            try:
                folder = self._waiting.get(timeout=max(0.0, until - time.monotonic()))
            except queue.Empty:
                return True
        return False

    def _catch_up(self) -> bool:
        """Copy the queued folders; retry once after an error, since another launch may have created the same run."""
        for last in (False, True):
            try:
                self._store = self._store or self.tracker.open()
                for folder in list(self._behind):
                    self._store.sync(folder)
                    del self._behind[folder]
                return True
            except Exception as error:  # trackers raise many kinds of errors; none of them may touch the grid
                self._store = None
                if last:
                    self._warn(error)
        return False

    def _warn(self, error: Exception) -> None:
        if self._failed_at is None:
            reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
            where = f"{self.tracker.name} at {self.tracker.place}"
            self.warn(f"{where} is unreachable; training continues without it: {self.tracker.public(reason)}")
        self._failed_at = time.monotonic()


def when_done(folder: TrialFolder) -> str:
    """Return the time at which the trial finished; empty if it has not."""
    return readable_text(folder.done).strip()


def start_time(folder: TrialFolder) -> float:
    """Return the start of training in seconds since 1970; for a finished trial, its end minus its training time."""
    if not folder.is_done():
        return folder.settings.stat().st_mtime
    row = record.collect([folder.record], ["finished_at", "train_seconds"]).to_pylist()[0]
    return float(datetime.fromisoformat(row["finished_at"]).timestamp() - row["train_seconds"])


def is_search(folder: TrialFolder, search_seeds: Collection[int]) -> bool:
    """Return whether it is a search trial of the grid, for which only validation metrics are shown."""
    return bool(search_seeds) and read_json(folder.settings).get("seed") in search_seeds


def final_metrics(folder: TrialFolder, search_seeds: Collection[int]) -> dict[str, float]:
    """Return a finished trial's test metrics and their epoch; for a search trial, only the epoch."""
    tested = [] if is_search(folder, search_seeds) else [f"test_{name}" for name in record.METRICS]
    names = [*tested, "selected_epoch"]
    (row,) = record.collect([folder.record], names).to_pylist()
    return {name: value for name, value in row.items() if value is not None}


def dotted(settings: Mapping[str, Any]) -> dict[str, bool | float | str]:
    """Flatten a trial's settings to dotted names with numbers, booleans and strings."""
    values = flat(settings).items()
    return {name: value if isinstance(value, bool | int | float | str) else str(value) for name, value in values}
