"""The watchdog: a trial that shows no progress for too long is ended, so that it is tried again."""

import threading
import time
from collections.abc import Callable
from types import TracebackType

from grid.store.attempts import Attempt
from grid.store.failures import Failure
from grid.store.home import Home
from runners.trial import holding
from runners.trial.events import Event

LOOKS = 8
"""Looks at a trial within the time that it may stand still."""


class Watchdog:
    """Looks at the running trials of a launch in a thread, while the block runs.

    Progress is what counts, not heartbeats: a process whose trainer is stuck still has a heart. Times are this
    process's own, so that a clock that is set, here or elsewhere, ends no trial.

    Args:
        seconds: without progress, after which a trial is ended.
        kill: ends the process of an attempt.
    """

    def __init__(self, home: Home, seconds: float, kill: Callable[[Attempt], None]) -> None:
        self.home, self.seconds, self.kill = home, seconds, kill
        self._seen: dict[str, tuple[object, float]] = {}
        """Of each running trial: its progress, and since when that is so."""
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="watchdog", daemon=True)

    def __enter__(self) -> "Watchdog":
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        self._thread.join()

    def note(self, event: Event) -> None:
        """Watch a trial from when it starts to when it ends."""
        if event.kind == "started":
            self._seen[event.trial_id] = (None, time.monotonic())
        elif event.kind not in ("epoch", "warning"):
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
