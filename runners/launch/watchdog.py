"""The watchdog: ends a trial without progress, so that it is tried again."""

import threading
import time
from collections.abc import Callable

from goalgrid.grid.store.attempts import Attempt
from goalgrid.grid.store.failures import Failure
from goalgrid.grid.store.home import Home
from goalgrid.runners.trial import holding
from goalgrid.runners.trial.events import Event

LOOKS = 8
"""Checks of a trial within the time limit."""


class Watchdog:
    """Ends running trials of a launch after so many seconds without progress; checks in a thread, while the block runs.

    It checks progress, not heartbeats: a process with a stuck trainer still renews its lease. It uses this process's
    monotonic clock, so that setting a clock on any machine ends no trial.
    """

    def __init__(self, home: Home, seconds: float, kill: Callable[[Attempt], None]) -> None:
        self.home, self.seconds, self.kill = home, seconds, kill
        self._seen: dict[str, tuple[object, float]] = {}
        """Of each running trial: its progress, and the time at which this was first seen."""
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="watchdog", daemon=True)

    def __enter__(self) -> "Watchdog":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def note(self, event: Event) -> None:
        """Watch a trial from its start to its end."""
        if event.kind == "started":
            self._seen[event.trial_id] = (None, time.monotonic())
        elif event.kind not in ("step", "epoch", "warning"):
            self._seen.pop(event.trial_id, None)

    def _watch(self) -> None:
        while not self._over.wait(self.seconds / LOOKS):
            for trial_id, (seen, since) in list(self._seen.items()):
                attempt = self.home.trial(trial_id).latest()
                if attempt is None or attempt.end.exists():
                    continue
                lease = attempt.content()
                progress = (attempt.number, lease.get("progress"))
                if progress != seen:
                    self._seen[trial_id] = (progress, time.monotonic())
                elif time.monotonic() - since > self.seconds:
                    self._seen.pop(trial_id, None)
                    self._end(attempt, int(lease.get("step", 0)))

    def _end(self, attempt: Attempt, step: int) -> None:
        message = f"no progress for {self.seconds / 60:g} minutes, after step {step:,}"
        if holding.end(attempt, Failure.TIMEOUT, message):
            self.kill(attempt)
