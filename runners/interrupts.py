"""Signals that ask a launch to end: Ctrl-C, and the SIGTERM of a scheduler that takes the machine away."""

import signal
import threading
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import Any

from runners.stopping import Stop

SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Interrupts:
    """While the block runs, a signal ends it at once; after `soften`, it asks all trials for a checkpoint first.

    A further signal ends at once again.
    """

    def __init__(self, stop: Stop, warn: Callable[[str], None]) -> None:
        self.stop, self.warn, self.soft = stop, warn, False
        self._before: dict[int, Any] = {}

    def __enter__(self) -> "Interrupts":
        self._before = self._listen()
        return self

    def soften(self) -> None:
        """Trials run now. Listens anew: Ray, which was started meanwhile, takes SIGTERM for itself."""
        self._listen()
        self.soft = True

    def _listen(self) -> dict[int, Any]:
        if threading.current_thread() is not threading.main_thread():
            return {}
        return {number: signal.signal(number, self._hear) for number in SIGNALS}

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        if self.stop.request is not None:
            self.stop.request.unlink(missing_ok=True)
        if kind is KeyboardInterrupt:
            self.warn("interrupted; what is done is kept")
        return kind is KeyboardInterrupt

    def _hear(self, number: int, frame: FrameType | None) -> None:
        if not self.soft or self.stop.asked():
            raise KeyboardInterrupt
        self.warn("asked to end: running trials write a checkpoint; Ctrl-C again ends at once")
        self.stop.ask_everywhere()
