"""Checks of Ray's head: whether it answers, whether this host is a node, and a watchdog for its death."""

import os
import socket
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

import psutil

from goalgrid.grid.errors import UserError
from goalgrid.runners.trial.stopping import INCOMPLETE, Stop

LOOK_SECONDS = 1.0
"""Seconds between two checks of the head."""


def answers(host: str, port: int) -> bool:
    """Return whether a process is listening at this address."""
    try:
        with socket.create_connection((host, port), timeout=2.0):
            return True
    except OSError:
        return False


def host_and_port_of(address: str) -> tuple[str, int]:
    """Split an address into host and port; raise UserError if it is not HOST:PORT.

    >>> host_and_port_of("10.0.0.1:6379"), host_and_port_of("[::1]:6379")
    (('10.0.0.1', 6379), ('::1', 6379))
    """
    host, _, port = address.rpartition(":")
    if not host or "/" in host or not port.isdecimal():
        raise UserError(
            f"--address {address!r} is neither HOST:PORT of a Ray head, e.g. 10.0.0.1:6379, nor 'auto'. "
            "It may also come from RAY_ADDRESS. Without both, goalgrid starts Ray on this machine."
        )
    return host.strip("[]"), int(port)


def check_member(address: str, nodes: Iterable[str]) -> None:
    """Raise a UserError if this host is not a node; Ray itself would try for a minute, then blame the token."""
    ours = {entry.address for interface in psutil.net_if_addrs().values() for entry in interface}
    if ours.isdisjoint(nodes):
        raise UserError(
            f"this host is not a node of the Ray cluster at {address}: a launch must be started on a node. "
            f"Join it first: `ray start --address={address}` (with --num-cpus=0, it runs no trials)."
        )


@contextmanager
def head_watched(
    address: str, stop: Stop, *, patience: float, grace: float, live: Callable[[], bool], warn: Callable[[str], None]
) -> Iterator[None]:
    """Watchdog thread for the with-block: ends the launch once the head is gone.

    Ray itself would wait for a minute and then kill this process without a message. Trials are asked for a checkpoint
    through the runs folder, which does not need Ray.

    Args:
        patience: seconds without an answer after which the head counts as gone.
        grace: seconds that running trials have to write checkpoints.
        live: returns whether a trial is running.
    """
    host_and_port, over = host_and_port_of(address), threading.Event()

    def watch() -> None:
        seen = time.monotonic()
        while time.monotonic() - seen < patience:
            if over.wait(LOOK_SECONDS):
                return
            if answers(*host_and_port):
                seen = time.monotonic()
        warn("Ray's head is gone: trials write a checkpoint, then this ends; run the same command again to continue")
        stop.ask_everywhere()
        until = time.monotonic() + grace
        while live() and time.monotonic() < until:
            time.sleep(0.2)
        if not over.is_set():
            for child in psutil.Process().children(recursive=True):
                child.kill()  # agents of our own Ray would search for their head for long
            os._exit(INCOMPLETE)  # threads that wait for the head in Ray's compiled code hear no signal

    threading.Thread(target=watch, name="head", daemon=True).start()
    try:
        yield
    finally:
        over.set()
