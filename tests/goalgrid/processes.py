"""Processes beside a test: the command line, started and watched like a user's; and forks that die at a moment."""

import os
import pty
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import psutil

from goalgrid.grid.store.attempts import DONE
from goalgrid.grid.store.home import Home, State, TrialFolder
from tests.fork_server import client

from ..conftest import ROOT


def start(*arguments: str, runs: Path) -> subprocess.Popen[str]:
    """The command line in a session of its own, as a terminal gives it."""
    command = [sys.executable, "-m", "goalgrid", *arguments]
    environment = {**os.environ, "GOALGRID_RUNS": str(runs)}
    streams = {"stdout": client.PIPE, "stderr": client.PIPE}
    return client.Popen(command, **streams, env=environment, cwd=ROOT, start_new_session=True)


def start_in_terminal(*arguments: str, runs: Path) -> tuple[subprocess.Popen[str], int]:
    """The command line in a terminal of its own, and the descriptor that closes the terminal."""
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "goalgrid", *arguments]
    environment = {**os.environ, "GOALGRID_RUNS": str(runs)}
    process = client.Popen(
        command, stdin=theirs, stdout=theirs, stderr=theirs, env=environment, cwd=ROOT,
        start_new_session=True, terminal=True,
    )  # fmt: skip
    os.close(theirs)
    threading.Thread(target=_read_on, args=(ours,), daemon=True).start()
    return process, ours


def _read_on(terminal: int) -> None:
    """Read what is printed, so that nobody waits for it to be read."""
    with suppress(OSError):
        while os.read(terminal, 4096):
            pass


def forked(
    work: Callable[[], object],
    moment: Callable[[str, tuple[object, ...]], bool] = lambda event, arguments: False,
    n: int = 1,
    act: Callable[[], object] = lambda: os.kill(os.getpid(), signal.SIGKILL),
) -> int:
    """The id of a fork of this process that does some work and then ends.

    Args:
        moment: says of an event of Python's audit hooks, which come before what they name, whether it counts.
        n: the n-th event that counts has the fork do `act`.
    """
    if pid := os.fork():
        return pid
    left = [n]

    def hook(event: str, arguments: tuple[object, ...]) -> None:
        if moment(event, arguments):
            left[0] -= 1
            if left[0] == 0:
                act()

    sys.addaudithook(hook)
    try:
        work()
    finally:
        os._exit(0)


def running(home: Home) -> list[TrialFolder]:
    """The trials that are being trained, with a step behind them."""
    folders = [TrialFolder(path) for path in (home.path / "trials").glob("*")]
    return [folder for folder in folders if folder.state() is State.RUNNING and folder.last_checkpoint.exists()]


def wait_until(
    happened: Callable[[], bool], process: subprocess.Popen[str] | None = None, seconds: float = 120
) -> None:
    """Wait for something; an error says what a process said that ended meanwhile."""
    until = time.monotonic() + seconds
    while not happened():
        if process is not None and process.poll() is not None:
            raise AssertionError(f"it ended with {process.returncode}: {process.communicate()[1]}")
        if time.monotonic() > until:
            raise AssertionError("it never happened")
        time.sleep(0.05)


def pid_of(folder: TrialFolder) -> int:
    """Of the process that trains this trial."""
    latest = folder.latest()
    assert latest
    return int(latest.content()["pid"])


def listening_addresses(process: subprocess.Popen[str]) -> set[str]:
    """Where a process and all its children wait for connections."""
    family = [psutil.Process(process.pid), *psutil.Process(process.pid).children(recursive=True)]
    connections = [connection for member in family for connection in member.net_connections("inet")]
    return {connection.laddr.ip for connection in connections if connection.status == psutil.CONN_LISTEN}


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
