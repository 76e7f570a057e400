"""Attempts at a trial: numbered files next to its checkpoints that record process, progress and outcome.

The lease `attempts/003.json` is created by one process, which renews it while it runs; `003.end.json` is written once.
"""

import os
import re
import time
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from goalgrid.grid.store import processes
from goalgrid.grid.store.files import exists, read_json
from goalgrid.grid.store.folder_clock import now_in

HEARTBEAT_SECONDS = 5.0
LEASE_SECONDS = 60.0
"""A lease of another machine is live if it was renewed within this time, by the host's or the folder's clock."""


class Failure(StrEnum):
    """The class of a failed attempt, which determines whether `runners.trial.retries` retries the trial."""

    OUT_OF_MEMORY = "out-of-memory"
    DEVICE = "device-error"
    NON_FINITE = "non-finite"
    TIMEOUT = "timeout"
    KILLED = "killed"
    PREEMPTED = "pre-empted"
    NODE_LOST = "node-lost"
    SICK_NODE = "sick-node"
    STORAGE = "storage"
    IMPORT = "import"
    DATA = "data"
    USER = "user-error"
    BUG = "bug"


DONE, STOPPED = "done", "stopped"
"""Outcomes without failure: the trial has its record, or the launch's rule stopped it early."""

LEASE = {"machine": str, "pid": int, "started": float | int, "heartbeat": float | int}
"""The fields of every lease, with their types."""

_LEASE_NAME = re.compile("([0-9]{3,6})[.]json")


@dataclass(frozen=True)
class Attempt:
    """One attempt at a trial, numbered from 1."""

    folder: Path
    number: int

    @property
    def lease(self) -> Path:
        return self.folder / f"{self.number:03}.json"

    @property
    def end(self) -> Path:
        return self.folder / f"{self.number:03}.end.json"

    @property
    def log(self) -> Path:
        return self.folder / f"{self.number:03}.log"

    @property
    def verdict(self) -> Path:
        """The reason why the launch's rule stops it, written by the driver in another process."""
        return self.folder / f"{self.number:03}.verdict.json"

    @property
    def steps(self) -> Path:
        """The step from which it resumed and the step that it reached, if they are counted."""
        return self.folder / f"{self.number:03}.steps"

    def content(self) -> dict[str, Any]:
        """Read the lease: process, start and progress; empty if it is damaged."""
        lease = read_json(self.lease)
        return lease if all(isinstance(lease.get(name), kind) for name, kind in LEASE.items()) else {}

    def launch(self) -> str:
        return str(self.content().get("launch", ""))

    def launch_id(self) -> str:
        """Return the id of the saved launch that began the attempt; empty if the launch was not saved."""
        return str(self.content().get("launch_id", ""))

    def ending(self) -> dict[str, Any]:
        """Read its outcome (from its lease if the disk was full); empty while it runs or after an unnoticed kill."""
        ending = read_json(self.end) or self.content()
        return ending if "outcome" in ending else {}

    def outcome(self) -> str | None:
        """Return `done`, `stopped` or its failure class; None while it runs or after an unnoticed kill."""
        outcome = self.ending().get("outcome")
        return outcome if outcome in (DONE, STOPPED, *Failure) else None

    def failure(self) -> Failure | None:
        """Return its failure class, or None; a process that vanished without a report counts as killed."""
        outcome = self.outcome()
        if outcome is None:
            return None if self.live() else Failure.KILLED
        return None if outcome in (DONE, STOPPED) else Failure(outcome)

    def message(self) -> str:
        return str(self.ending().get("message", ""))

    def step(self) -> int:
        """Return the number of completed training steps: from the outcome, or from the lease of a running attempt."""
        steps = (content.get("step") for content in (self.ending(), self.content()))
        return next((step for step in steps if step and isinstance(step, int)), 0)

    def live(self) -> bool:
        """Return whether a process holds the attempt."""
        return not exists(self.end) and self.is_held()

    def is_held(self) -> bool:
        """Return whether its lease is held: by its process on this machine, else by its heartbeat."""
        lease = self.content()
        if not lease or "outcome" in lease:
            return False
        if foreign(lease):
            renewed = self._renewed()
            if min(abs(time.time() - seen) for seen in (lease["heartbeat"], renewed)) < LEASE_SECONDS:
                return True
            return abs(now_in(self.folder) - renewed) < LEASE_SECONDS  # this host's clock may be off
        return processes.started(lease["pid"]) == lease["started"]

    def _renewed(self) -> float:
        """The time of the last write to its lease, by the file system's clock; 0 if the lease is gone."""
        try:
            return self.lease.stat().st_mtime
        except OSError:
            return 0.0


def attempts_in(folder: Path) -> list[Attempt]:
    try:
        return [Attempt(folder, number) for number in sorted(_numbers(names_in(folder)))]
    except OSError:
        return []


def live_in(folder: Path) -> bool:
    """Return whether a process holds the latest attempt in this folder; lists the folder only once."""
    names = names_in(folder)
    latest = Attempt(folder, max(_numbers(names), default=0))
    return latest.number > 0 and latest.end.name not in names and latest.is_held()


def names_in(folder: Path) -> list[str]:
    """List the names in a folder; empty if it does not exist. Raise an OSError if it cannot be listed."""
    try:
        return os.listdir(folder)  # noqa: PTH208 - as names, without a path for each
    except (FileNotFoundError, NotADirectoryError):
        return []


def _numbers(names: Iterable[str]) -> list[int]:
    return [int(match[1]) for name in names if (match := _LEASE_NAME.fullmatch(name))]


def foreign(lease: dict[str, Any]) -> bool:
    """Return whether this lease's process runs on another machine, so that it cannot be looked up from here."""
    return bool(lease.get("machine") != processes.machine())
