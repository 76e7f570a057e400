"""Ray's head: whether it answers, whether this host is its node, and how a launch ends when it dies."""

import os
import resource
import socket
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress

import psutil

from goalgrid.grid.errors import UserError
from goalgrid.runners.trial.stopping import INCOMPLETE, Stop

LOOK_SECONDS = 1.0
"""Between two checks of the head."""


FILES = 64
"""Files that a process has to be able to open: with 64, Ray starts on two cores; with 40, it waits in vain."""


def check_files() -> None:
    """Check that Ray's processes may open enough files; Ray would wait for half a minute, and name a port.

    Raises:
        UserError: they may not.
    """
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    if most != resource.RLIM_INFINITY and most < FILES:
        raise UserError(
            f"processes may open {most} files here, and Ray needs more. Raise that (ulimit -n 4096), or use --here."
        )


def answers(host: str, port: int) -> bool:
    """Whether a process listens at this address."""
    try:
        with socket.create_connection((host, port), timeout=2.0):
            return True
    except OSError:
        return False


def node_here(port: int) -> bool:
    """Whether a node of the cluster whose head listens at this port runs on this host."""
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            if process.name() == "raylet" and any(
                word.startswith("--gcs-address=") and word.endswith(f":{port}") for word in process.cmdline()
            ):
                return True
    return False


def host_and_port_of(address: str) -> tuple[str, int]:
    """Host and port.

    >>> host_and_port_of("10.0.0.1:6379"), host_and_port_of("[::1]:6379")
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


def check_node(address: str) -> None:
    """Check that a head listens at HOST:PORT, and that this host is a node of its cluster.

    Raises:
        ConnectionError: nothing listens there.
        UserError: it is not HOST:PORT, or this host is no node of the cluster.
    """
    host, port = host_and_port_of(address)
    if not answers(host, port):  # Ray would try for two minutes
        raise ConnectionError("nothing listens there")
    if not node_here(port):  # Ray would try for a minute, and then blame the token
        raise _no_node(address)


def check_member(address: str, nodes: Iterable[str]) -> None:
    """Check that this host is among the nodes of a cluster: a node that runs here may be of another cluster.

    Args:
        nodes: addresses of the cluster's nodes.

    Raises:
        UserError: it is not.
    """
    ours = {entry.address for interface in psutil.net_if_addrs().values() for entry in interface}
    if ours.isdisjoint(nodes):
        raise _no_node(address)


def _no_node(address: str) -> UserError:
    return UserError(
        f"this host is no node of the Ray cluster at {address}: a launch is driven from a node. "
        f"Join it first by `ray start --address={address}` (--num-cpus=0: it trains nothing)."
    )


@contextmanager
def head_watched(
    address: str,
    stop: Stop,
    *,
    patience: float,
    grace: float,
    live: Callable[[], bool],
    warn: Callable[[str], None],
) -> Iterator[None]:
    """Check in a thread, while the block runs, whether the head answers; end the launch once it is gone.

    Ray would wait for the head for a minute and then end this process without a message. Trials are asked for a
    checkpoint through the runs folder, which needs no Ray.

    Args:
        patience: seconds without an answer after which the head counts as gone.
        grace: seconds for the checkpoints of running trials.
        live: whether a trial is running.
    """
    host_and_port, over = host_and_port_of(address), threading.Event()

    def watch() -> None:
        seen = time.monotonic()
        while time.monotonic() - seen < patience:
            if over.wait(LOOK_SECONDS):
                return
            if answers(*host_and_port):
                seen = time.monotonic()
        warn("Ray's head is gone: running trials write a checkpoint, then this ends; the same command goes on")
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
