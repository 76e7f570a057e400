"""Disturbing launches as the world does, and what that cost: for `goalgrid selftest` and benchmarks/chaos.py."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeVar

from grid.store import processes
from grid.store.attempts import DONE, Attempt
from grid.store.home import Home, TrialFolder

POLL_SECONDS = 0.02

Found = TypeVar("Found")


class Unmet(Exception):
    """What was waited for did not come."""


@dataclass(frozen=True)
class Command:
    """`goalgrid run` as a user gives it, again and again; what it says is added to a log.

    Args:
        words: the grid and its options.
    """

    words: tuple[str, ...]
    home: Home
    log: Path

    def start(self) -> subprocess.Popen[bytes]:
        """Give the command, in a session of its own, so that a Ctrl-C here is none there."""
        command = [sys.executable, "-m", "goalgrid", "run", *self.words]
        command += ["--runs", str(self.home.path), "--mlflow-uri", ""]
        with self.log.open("ab") as log:
            return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True)

    def said(self) -> str:
        """The last line of the log."""
        lines = self.log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
        return lines[-1] if lines else "nothing"


def wait_for(look: Callable[[], Found | None], what: str, seconds: float) -> Found:
    """The first thing that `look` finds.

    Raises:
        Unmet: it found nothing for so long.
    """
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        found = look()
        if found:
            return found
        time.sleep(POLL_SECONDS)
    raise Unmet(f"{what} did not come within {seconds:g} s")


def folders(home: Home) -> list[TrialFolder]:
    """Of all trials that were begun."""
    return [TrialFolder(path) for path in sorted((home.path / "trials").glob("*"))]


def live(home: Home) -> list[Attempt]:
    """Attempts that some process makes at the moment."""
    latest = (folder.latest() for folder in folders(home))
    return [attempt for attempt in latest if attempt and attempt.live()]


def strike(lease: dict[str, Any]) -> bool:
    """Kill -9 the process of this lease, if it is one of this machine; whether it was."""
    here = lease["machine"] == processes.machine() and processes.started(lease["pid"]) == lease["started"]
    if here:
        os.kill(lease["pid"], signal.SIGKILL)
    return here


def done_at(home: Home) -> dict[str, tuple[int, ...]]:
    """Of every finished trial, which files say so: they change if it is trained again."""
    found = {}
    for folder in folders(home):
        if folder.done.exists():
            stats = [path.stat() for path in (folder.done, folder.record)]
            found[folder.trial_id] = tuple(number for stat in stats for number in (stat.st_ino, stat.st_mtime_ns))
    return found


def trained_after_done(home: Home) -> list[str]:
    """Trials at which there was another attempt after one that finished them."""
    outcomes = {folder.trial_id: [attempt.outcome() for attempt in folder.attempts()][:-1] for folder in folders(home)}
    return [trial_id for trial_id, before in outcomes.items() if DONE in before]


@dataclass(frozen=True)
class Cost:
    """What disturbances cost.

    Args:
        attempts: at all trials together.
        steps: trained in all, those that were lost included.
        lost: by each attempt that was cut off, as counted when the next one began.
    """

    attempts: int
    steps: int
    lost: tuple[int, ...]


def cost(trials: Iterable[TrialFolder]) -> Cost:
    """By the exact steps that attempts count where `GOALGRID_COUNT_STEPS` is set."""
    attempts, steps, lost = 0, 0, list[int]()
    for folder in trials:
        found = folder.attempts()
        attempts += len(found)
        spans = [span for attempt in found if (span := attempt.counted())]
        steps += sum(last - first for first, last in spans)
        lost += _lost(spans)
    return Cost(attempts, steps, tuple(lost))


def _lost(spans: Sequence[tuple[int, int]]) -> list[int]:
    """Between each attempt and the next: how far that one fell back.

    >>> _lost([(0, 12), (10, 31), (31, 40)])
    [2, 0]
    """
    return [last - first for (_, last), (first, _) in pairwise(spans)]
