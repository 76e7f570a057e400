"""The lease of a trial. Only one process can create an attempt's number, which needs neither clocks nor file locks.

A process whose attempt was ended, or followed by a later one, stops without writing to the trial
(`store.files.fenced`).
"""

import errno
import faulthandler
import json
import os
import socket
import sys
import threading
import time
import uuid
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, BinaryIO, TextIO

from goalgrid.grid.errors import UserError
from goalgrid.grid.store import processes
from goalgrid.grid.store.attempts import HEARTBEAT_SECONDS, Attempt, Failure, foreign
from goalgrid.grid.store.files import cannot_write, create_text, fenced, is_aside, write_json
from goalgrid.grid.store.home import TrialFolder
from goalgrid.runners.trial.stopping import Stop

LOOK_SECONDS = 1.0
"""Seconds between two checks whether this attempt should continue."""

WATCH_SECONDS = 2.5 * HEARTBEAT_SECONDS
"""Seconds without a heartbeat after which another machine's lease counts as abandoned; does not compare clocks."""

COUNT_STEPS = "GOALGRID_COUNT_STEPS"
"""Environment variable: if set, attempts write every step to a file, to measure how many steps a kill loses."""

_HELD: set[Attempt] = set()
"""Current attempts of this process."""
_TAKING = threading.Lock()
"""Held while an attempt begins: until it is in `_HELD`, its lease would look abandoned to another thread."""


class Busy(Exception):
    """Another live process is training this trial."""


class Fenced(Exception):
    """Another process ended this attempt and now holds the trial."""


@dataclass
class Lease:
    """The lease of an attempt that this process makes."""

    attempt: Attempt
    lease: dict[str, Any]
    stop: Stop
    _out: TextIO
    _steps: BinaryIO | None = None
    _over: threading.Event = field(default_factory=threading.Event)
    _fenced: bool = False
    _ended: bool = False

    def log(self, text: str) -> None:
        """Write a line with the time to the attempt's log; disk errors are ignored."""
        with suppress(OSError):
            self._out.write(f"{datetime.now(UTC):%Y-%m-%d %H:%M:%S} {text}\n")
            self._out.flush()

    def begin(self, step: int) -> None:
        """Record the step from which the trial starts or resumes."""
        if step:
            self.lease["from_step"] = step
            self._renew()
        if COUNT_STEPS in os.environ:
            self._steps = self.attempt.steps.open("wb")
        self._count(step)
        self.log(f"resumes from step {step:,}" if step else "starts from scratch")

    def beat(self, step: int) -> bool:
        """Record progress, and return whether the trial was asked to stop; raise Fenced if another process holds it."""
        self.lease["step"] = step
        self.lease["progress"] += 1
        self._count(step)
        if self._fenced:
            raise Fenced
        return self.stop.asked()

    def end(self, outcome: str, message: str = "") -> bool:
        """Write how this attempt ended; return False if that failed or another process had already written it."""
        self.log(f"{outcome}: {message}" if message else outcome)
        self._over.set()  # no heartbeat may write over a lease that says the end
        self._ended = end(self.attempt, outcome, message, step=self.lease["step"])
        return self._ended

    def commit(self) -> None:
        """Check, before every write, that this process may write to the trial; raise Fenced or UserError if not."""
        self._look()
        if self._fenced:
            raise Fenced
        if not self.attempt.lease.exists():
            gone = FileNotFoundError(errno.ENOENT, "it was moved away, or its disk is no longer mounted")
            raise cannot_write(self.attempt.lease, gone) from gone

    def _count(self, step: int) -> None:
        if self._steps is not None:  # what a process wrote outlives its kill
            os.pwrite(self._steps.fileno(), b"%d %d" % (self.lease["from_step"], step), 0)

    def _renew(self) -> None:
        """Write the lease without flushing it to disk, since no lease survives a power failure anyway."""
        write_json(self.attempt.lease, self.lease, durable=False)

    def _look(self) -> None:
        later = Attempt(self.attempt.folder, self.attempt.number + 1)
        ended = self.attempt.end.exists() and not self._ended
        replaced = self.attempt.content().get("token", self.lease["token"]) != self.lease["token"]
        self._fenced = self._fenced or ended or later.lease.exists() or replaced
        self.stop.look()

    def _live(self) -> None:
        """Renew the lease and check for stop requests until the attempt is over."""
        renewed = time.monotonic()
        while not self._over.wait(LOOK_SECONDS):
            try:
                self._look()
                if not (self._fenced or self._ended) and time.monotonic() - renewed >= HEARTBEAT_SECONDS:
                    renewed = time.monotonic()
                    self.lease |= {"heartbeat": time.time(), "beats": self.lease["beats"] + 1}
                    self._renew()
            except (OSError, UserError):
                continue  # a disk that is full now may have room at the next beat


@contextmanager
def new_attempt(
    folder: TrialFolder, stop: Stop, launch: str = "alone", node: str = "", launch_id: str = ""
) -> Iterator[Lease]:
    """Hold the lease of a new attempt at a trial while the block runs; the block calls `end` with the outcome.

    Tries are counted per launch; `launch_id` is the id of its kept launch, or empty. If `node` (a Ray node id) is
    given, all output of the process goes to the attempt's log.

    Raises Busy if another live process is training the trial, UserError if the folder cannot be written.
    """
    try:
        with _TAKING:
            attempt, lease = _acquire(folder, launch, node, launch_id)
            try:
                _tidy(folder, attempt)
                out = attempt.log.open("a", encoding="utf-8")
            except OSError as error:  # otherwise it would count as running while this process lives
                end(attempt, Failure.STORAGE, str(error))
                raise
            _HELD.add(attempt)
    except OSError as error:
        raise cannot_write(folder.path, error) from error
    hold = Lease(attempt, lease, stop, out)
    beats = threading.Thread(target=hold._live, name="heartbeat", daemon=True)
    fences = fenced(folder.path, hold.commit), fenced(folder.attempts_folder, hold.commit)
    try:
        with fences[0], fences[1], _captured(out) if node else nullcontext():
            beats.start()
            try:
                yield hold
            finally:
                hold._over.set()
                beats.join()
                _HELD.discard(attempt)
                if hold._steps is not None:
                    hold._steps.close()
    finally:
        with suppress(OSError):  # a disk that failed the attempt may refuse the last bytes of its log too
            out.close()


def end(attempt: Attempt, outcome: str, message: str = "", *, step: int | None = None) -> bool:
    """Write how an attempt ended, and after which step; return False if that failed or was written before."""
    ended = datetime.now(UTC).isoformat(timespec="seconds")
    content = {"outcome": outcome, "message": message, "step": step, "ended": ended}
    try:
        return create_text(attempt.end, json.dumps(content))
    except OSError:  # the disk may have failed the attempt; its process ends all the same
        with suppress(OSError):  # without room for a file, the existing lease can say it
            attempt.lease.write_text(json.dumps(attempt.content() | content), encoding="utf-8")
        return False


def _acquire(folder: TrialFolder, launch: str, node: str, launch_id: str) -> tuple[Attempt, dict[str, Any]]:
    folder.attempts_folder.mkdir(parents=True, exist_ok=True)
    before = folder.latest()
    if before and not over(before):
        lease = before.content()
        raise Busy(f"process {lease.get('pid')} on {lease.get('host')} is training this trial, so it is skipped here")
    if before and folder.is_done():  # checked after the attempt's end, which is written later than `done`
        raise Busy("another process has just finished this trial")
    attempt = Attempt(folder.attempts_folder, before.number + 1 if before else 1)
    lease = {
        "token": uuid.uuid4().hex, "launch": launch, "node": node, "machine": processes.machine(),
        "host": socket.gethostname(), "pid": os.getpid(), "started": processes.started(os.getpid()) or 0.0,
        "began": datetime.now(UTC).isoformat(timespec="seconds"), "heartbeat": time.time(), "beats": 0,
        "from_step": 0, "step": 0, "progress": 0, **({"launch_id": launch_id} if launch_id else {}),
    }  # fmt: skip
    if not create_text(attempt.lease, json.dumps(lease)):
        raise Busy("another process has just started to train this trial, so this process skips it")
    if before and before.outcome() is None:
        end(before, Failure.KILLED, "its process is gone")
    return attempt, lease


def over(attempt: Attempt) -> bool:
    """Return whether no process makes this attempt any more; for another machine, first wait for a heartbeat."""
    if attempt.end.exists():
        return True
    before = attempt.content()
    if (before.get("machine"), before.get("pid")) == (processes.machine(), os.getpid()):
        return attempt not in _HELD  # its end could not be written
    if attempt.live():
        return False
    until = time.monotonic() + WATCH_SECONDS
    while before and foreign(before) and time.monotonic() < until:
        time.sleep(min(WATCH_SECONDS, 0.2))
        if attempt.end.exists() or attempt.content() != before:
            return attempt.end.exists()
    return True


def await_beats(attempts: Iterable[Attempt]) -> None:
    """Wait until each lease of another machine is renewed or known to be abandoned, which a file alone cannot show."""
    before = {attempt: attempt.content() for attempt in attempts}
    waiting = [attempt for attempt, lease in before.items() if lease and foreign(lease)]
    while waiting := [attempt for attempt in waiting if attempt.live() and attempt.content() == before[attempt]]:
        time.sleep(LOOK_SECONDS)


def _tidy(folder: TrialFolder, attempt: Attempt) -> None:
    """Remove partially written files of earlier attempts, whose processes are dead or fenced."""
    prefix = f".{attempt.number:03}."
    halves = [path for path in folder.attempts_folder.glob(".*.json.*") if not path.name.startswith(prefix)]
    for path in filter(is_aside, [*folder.path.glob(".*.*"), *halves]):
        path.unlink(missing_ok=True)


@contextmanager
def _captured(out: TextIO) -> Iterator[None]:
    """Redirect all output of this process to the attempt's log, including C code and crash tracebacks."""
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    descriptors = [os.dup(1), os.dup(2)]
    os.dup2(out.fileno(), 1)
    os.dup2(out.fileno(), 2)
    faulthandler.enable(out)
    try:
        yield
    finally:
        faulthandler.disable()
        for stream in (sys.stdout, sys.stderr):
            with suppress(OSError):
                stream.flush()
        for number, descriptor in enumerate(descriptors, start=1):
            os.dup2(descriptor, number)
            os.close(descriptor)
