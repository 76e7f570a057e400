"""Ray's head: whether it answers, and how a launch ends when it does not."""

import os
import socket
import threading
import time
from collections.abc import Callable

import psutil

from grid.errors import UserError
from runners.trial.stopping import INCOMPLETE, Stop

LOOK_SECONDS = 1.0
"""Between two checks of the head."""


def answers(host: str, port: int) -> bool:
    """Whether a process listens at this address."""
    try:
        with socket.create_connection((host, port), timeout=2.0):
            return True
    except OSError:
        return False


def parsed(address: str) -> tuple[str, int]:
    """Host and port.

    >>> parsed("10.0.0.1:6379"), parsed("[::1]:6379")
    (('10.0.0.1', 6379), ('::1', 6379))

    Raises:
        UserError: it is not HOST:PORT.
    """
    host, _, port = address.rpartition(":")
    if not host or "/" in host or not port.isdecimal():
        raise UserError(
            f"--address {address!r} is not HOST:PORT of a Ray head, e.g. 10.0.0.1:6379, nor 'auto'. "
            "RAY_ADDRESS counts too; without both, goalgrid starts a Ray of its own on this machine."
        )
    return host.strip("[]"), int(port)


class HeadWatch:
    """Checks in a thread, while the block runs, whether the head answers; ends the launch once it is gone.

    Ray would wait for the head for a minute and then end this process without a message. Trials are asked for a
    checkpoint through the runs folder, which needs no Ray.

    Args:
        address: of the head.
        patience: seconds without an answer after which the head counts as gone.
        grace: seconds for the checkpoints of running trials.
        live: whether a trial is running.
        warn: called with a message for the user.
    """

    def __init__(
        self,
        address: str,
        stop: Stop,
        *,
        patience: float,
        grace: float,
        live: Callable[[], bool],
        warn: Callable[[str], None],
    ) -> None:
        self.address, self.stop, self.patience, self.grace = parsed(address), stop, patience, grace
        self.live, self.warn = live, warn
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="head", daemon=True)

    def __enter__(self) -> "HeadWatch":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()

    def _watch(self) -> None:
        seen = time.monotonic()
        while time.monotonic() - seen < self.patience:
            if self._over.wait(LOOK_SECONDS):
                return
            if answers(*self.address):
                seen = time.monotonic()
        self._end()

    def _end(self) -> None:
        self.warn("Ray's head is gone: running trials write a checkpoint, then this ends; the same command goes on")
        self.stop.ask_everywhere()
        until = time.monotonic() + self.grace
        while self.live() and time.monotonic() < until:
            time.sleep(0.2)
        if not self._over.is_set():
            for child in psutil.Process().children(recursive=True):
                child.kill()  # agents of our own Ray would search for their head for long
            os._exit(INCOMPLETE)  # threads that wait for the head in Ray's compiled code hear no signal
