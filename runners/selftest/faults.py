"""Starting, watching and killing launches on purpose: for `goalgrid selftest` and benchmarks/chaos.py."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from goalgrid.grid.store import processes
from goalgrid.grid.store.attempts import DONE, Attempt
from goalgrid.grid.store.home import Home

POLL_SECONDS = 0.02

Awaited = TypeVar("Awaited")


class Unmet(Exception):
    """An awaited event did not happen in time."""


@dataclass(frozen=True)
class Command:
    """`goalgrid run`, with a grid and options as a user gives them, as often as needed; the log collects its output."""

    words: tuple[str, ...]
    home: Home
    log: Path

    def start(self) -> subprocess.Popen[bytes]:
        """Start the command in its own session, so that a Ctrl-C here does not reach it."""
        command = [sys.executable, "-m", "goalgrid", "run", *self.words]
        command += ["--runs", str(self.home.path), "--mlflow-uri", ""]
        with self.log.open("ab") as log:
            return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True)

    def last_line(self) -> str:
        """The last line of the log."""
        lines = self.log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
        return lines[-1] if lines else "nothing"


def wait_for(look: Callable[[], Awaited | None], what: str, seconds: float) -> Awaited:
    """Wait until `look` returns a true value, and return it.

    Raises:
        Unmet: it did not within these seconds; names `what` was awaited.
    """
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        value = look()
        if value:
            return value
        time.sleep(POLL_SECONDS)
    raise Unmet(f"{what} did not come within {seconds:g} s")


def live(home: Home) -> list[Attempt]:
    """Attempts that a process makes now."""
    latest = (folder.latest() for folder in home.trials())
    return [attempt for attempt in latest if attempt and attempt.live()]


def strike(lease: dict[str, Any]) -> bool:
    """Kill -9 the process of this lease if it runs on this machine; returns whether it does."""
    here = lease["machine"] == processes.machine() and processes.started(lease["pid"]) == lease["started"]
    if here:
        os.kill(lease["pid"], signal.SIGKILL)
    return here


def done_at(home: Home) -> dict[str, tuple[int, ...]]:
    """Inodes and times of the files of every finished trial: they change if the trial is trained again."""
    stamps = {}
    for folder in home.trials():
        if folder.is_done():
            stats = [path.stat() for path in (folder.done, folder.record)]
            stamps[folder.trial_id] = tuple(number for stat in stats for number in (stat.st_ino, stat.st_mtime_ns))
    return stamps


def trained_after_done(home: Home) -> list[str]:
    """Trials with a further attempt after an attempt that finished them."""
    outcomes = {folder.trial_id: [attempt.outcome() for attempt in folder.attempts()][:-1] for folder in home.trials()}
    return [trial_id for trial_id, before in outcomes.items() if DONE in before]
