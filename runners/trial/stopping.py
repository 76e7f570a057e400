"""Stop requests: a running trial writes a checkpoint at its next step, and the same command resumes from there."""

import os
import signal
import stat
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import Any

from goalgrid.grid.errors import UserError
from goalgrid.grid.store.files import write_text

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""Signals handled: Ctrl-C, preemption by a scheduler, and a closed terminal."""

SAME_SECONDS = 2.0
"""A scheduler's signal within this time after the first is the same request: Slurm signals all processes of the job,
and the job script passes the signal on again."""

INCOMPLETE = 3
"""Exit code of a process that is interrupted before all its trials are done."""


class Stop:
    """A stop request, made in this process (by a signal) or by a file that all nodes see (None: no file)."""

    def __init__(self, request: Path | None = None) -> None:
        self.request = request
        self._asked = threading.Event()

    def ask(self) -> None:
        self._asked.set()

    def ask_everywhere(self) -> None:
        """Ask this process to stop, and all others through the file."""
        self.ask()
        if self.request is not None:
            with suppress(UserError):
                write_text(self.request, "")

    def asked(self) -> bool:
        return self._asked.is_set()

    def asked_everywhere(self) -> bool:
        """Return whether the file that asks all processes to stop exists."""
        return self.request is not None and self.request.exists()

    def look(self) -> None:
        """Ask this process to stop if the file exists."""
        if self.asked_everywhere():
            self.ask()


Handler = Callable[[int, FrameType | None], None]

_LISTENING: dict[int, Handler] = {}
"""goalgrid's signal handlers, by signal."""
_MASK = threading.local()
"""Signals that this thread had blocked before a fork."""


def listen(number: int, handler: Handler) -> Any:
    """Install a signal handler; return the previous one.

    Processes forked by user code do not inherit it: SIGTERM ends them, as process pools expect. They ignore the signals
    of a terminal, since the parent handles those and may need its children to write a checkpoint.
    """
    _LISTENING[number] = handler
    return signal.signal(number, handler)


def _block() -> None:
    _MASK.before = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)  # else Python drops what comes too early


def _unblock() -> None:
    signal.pthread_sigmask(signal.SIG_SETMASK, _MASK.before)


def _unblock_fork() -> None:
    for number, handler in _LISTENING.items():
        if signal.getsignal(number) == handler:
            signal.signal(number, signal.SIG_DFL if number == signal.SIGTERM else signal.SIG_IGN)
    _unblock()


os.register_at_fork(before=_block, after_in_parent=_unblock, after_in_child=_unblock_fork)


class Interrupts:
    """Context in which a signal ends the block at once; after `soften`, trials first write a checkpoint.

    A second signal always ends it at once, except a SIGTERM or SIGHUP within `SAME_SECONDS` of the first, which is the
    same request. `heard` is the latest signal, or 0.
    """

    def __init__(self, stop: Stop, warn: Callable[[str], None]) -> None:
        self.stop, self.warn, self.soft, self.heard = stop, warn, False, 0
        self._before: dict[int, Any] = {}
        self._first: float | None = None
        """Time of the first signal."""

    def __enter__(self) -> "Interrupts":
        self._before = self._listen()
        return self

    def soften(self) -> None:
        """Let trials write checkpoints on a signal from now on; reinstall the handlers, since Ray replaces SIGTERM's.

        Raises KeyboardInterrupt if an earlier signal was swallowed, e.g. during an import.
        """
        self._listen()
        if self.heard:
            raise KeyboardInterrupt
        self.soft = True

    def _listen(self) -> dict[int, Any]:
        if threading.current_thread() is not threading.main_thread():
            return {}
        return {number: listen(number, self._hear) for number in SIGNALS}

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> bool:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        if self.stop.request is not None:
            with suppress(FileNotFoundError, NotADirectoryError):
                self.stop.request.unlink()
        if kind is KeyboardInterrupt:
            self.warn("interrupted; finished work is kept")
        return kind is KeyboardInterrupt

    def _hear(self, number: int, frame: FrameType | None) -> None:
        self.heard = number
        if number == signal.SIGHUP:
            _leave_terminal()
        now = time.monotonic()
        if number != signal.SIGINT and self._first is not None and now - self._first < SAME_SECONDS:
            return
        self._first = self._first or now
        if not self.soft or self.stop.asked():
            raise KeyboardInterrupt
        self.stop.ask_everywhere()
        with suppress(OSError, RuntimeError):  # nobody reads it any more, or the signal came amid another line
            self.warn("asked to end: running trials write a checkpoint; press Ctrl-C again to end at once")


def _leave_terminal() -> None:
    """Redirect output from a closed terminal, where every write fails, to /dev/null."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for stream in (1, 2):
        if stat.S_ISCHR(os.fstat(stream).st_mode):
            os.dup2(nowhere, stream)
    os.close(nowhere)


@contextmanager
def signals_left_to_us() -> Iterator[None]:
    """Let processes started by this thread in the block survive the signals that ask this process to stop.

    A closed terminal signals all its processes, and so does Slurm when it preempts a job. If Ray ended, trials could
    not write checkpoints.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGHUP, signal.SIGTERM])  # processes inherit the mask
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
