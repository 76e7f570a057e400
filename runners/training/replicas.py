"""The processes that train a trial together with its own: started with it, told what to do at each step, ended with it.

The trial's process is the first replica, and the only one that knows folders, records and drivers: it validates while
the others wait, and decides for all. Another one that dies or fails ends the attempt; if the first one dies, the
others see their connection closed, and end.
"""

import os
import queue
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from multiprocessing import Pipe
from multiprocessing.connection import Connection, wait
from pathlib import Path
from types import TracebackType
from typing import Any

from grid.errors import UserError
from grid.settings import TrialSettings
from runners.training import checkpoints, collectives
from runners.training.collectives import PeerLost
from runners.training.inputs import check_replicas
from runners.training.learner import Learner
from runners.training.machine import Machine

REASON_SECONDS = 5.0
"""For the reason to be known why an exchange broke off."""

LAST_WORDS_SECONDS = 0.3
"""After the first sign that something went wrong: others may tell better why."""


class ReplicaDied(Exception):
    """A process that trained a trial together with this one is gone."""


@dataclass(eq=False)
class Replica:
    """One of the others, in a process of its own.

    Args:
        answers: that nobody has read yet.
        failed: whether it said why it ends.
    """

    rank: int
    process: subprocess.Popen[bytes]
    connection: "Connection[Any, Any]"
    answers: queue.SimpleQueue[Any] = field(default_factory=queue.SimpleQueue)
    failed: bool = False

    @classmethod
    def start(cls, rank: int) -> "Replica":
        """A new interpreter: a copy of this process would have torch's threads and locks without what holds them."""
        ours, theirs = Pipe()
        command = [sys.executable, "-P", "-m", "runners.training.replica_process", str(theirs.fileno())]
        path = os.pathsep.join(folder or str(Path.cwd()) for folder in sys.path)
        process = subprocess.Popen(
            command,
            pass_fds=[theirs.fileno()],
            stdin=subprocess.DEVNULL,
            stdout=2,  # what is printed there is the product of a command
            env={**os.environ, "PYTHONPATH": path},
            start_new_session=True,  # Ctrl-C is for the first replica, which asks all for a checkpoint
        )
        theirs.close()
        return cls(rank, process, ours)

    def death(self) -> str:
        """How it died."""
        code = self.process.wait()
        how = f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
        return f"replica {self.rank} of the training, process {self.process.pid}, died: {how}"


class Replicas:
    """The other replicas of a training, while the block runs; none, if its machine asks for one process.

    Nobody waits for a replica that stands still: the launch's watchdog ends its trial.
    """

    def __init__(self, settings: TrialSettings, machine: Machine = Machine()) -> None:  # noqa: B008
        self.settings, self.machine = settings, machine
        self._others: list[Replica] = []
        self._reasons: list[Exception] = []
        self._broken = threading.Event()
        self._watcher = threading.Thread(target=self._watch, name="replicas", daemon=True)

    @property
    def count(self) -> int:
        """Of all, the first included."""
        return len(self._others) + 1

    def said(self) -> str:
        """Who they are, in words."""
        pids = ", ".join(str(other.process.pid) for other in self._others)
        return f"{self.count} replicas: this process, and {pids}"

    def __enter__(self) -> "Replicas":
        if self.machine.replicas > 1:
            self._folder = Path(tempfile.mkdtemp(prefix="goalgrid-replicas-"))
            try:
                for rank in range(1, self.machine.replicas):
                    self._others.append(Replica.start(rank))
            except BaseException:
                self._end()
                raise
            self._watcher.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._others:
            self._end()

    def start(self, learner: Learner, states: Sequence[dict[str, Any]], step: int) -> None:
        """Wait until all have read the data, and give them what this one goes on from.

        Args:
            states: of their generators of random numbers; who has none begins a sequence of its own at this step.

        Raises:
            UserError: the batches are too small, or a replica cannot read the data.
            ReplicaDied: one did.
        """
        if not self._others:
            return
        check_replicas(self.settings.train, len(learner.inputs.pairs.train.captions), self.count)
        for other in self._others:
            self._tell(other, "prepare", other.rank, self.settings, self.machine)
        for other in self._others:
            self._answer(other)
        meeting = self._folder / "meeting"
        state = bytes(checkpoints.dumped(learner.state()))
        for other in self._others:
            self._tell(other, "meet", str(meeting))
        with self._whole():
            learner.exchange = collectives.meet(0, self.count, meeting, learner.inputs.device)
        for other in self._others:
            known = other.rank <= len(states)
            random = bytes(checkpoints.dumped(states[other.rank - 1])) if known else None
            self._tell(other, "start", state, random, step)

    def begin(self, epoch: int, batch: int) -> None:
        """Have all begin an epoch, at this batch of it."""
        for other in self._others:
            self._tell(other, "epoch", epoch, batch)

    @contextmanager
    def step(self) -> Iterator[None]:
        """Have all make a step, which this process makes in the block.

        Raises:
            ReplicaDied: one did. Or what another one raised.
        """
        for other in self._others:
            self._tell(other, "step")
        with self._whole():
            yield

    def random_states(self) -> list[dict[str, Any]]:
        """Of the generators of all others, in the order of their ranks."""
        for other in self._others:
            self._tell(other, "random")
        return [checkpoints.loaded(self._answer(other), self.machine.device) for other in self._others]

    @contextmanager
    def _whole(self) -> Iterator[None]:
        """Where the block fails because of another replica, or hides that, raise what is wrong there."""
        try:
            yield
        except Exception as error:
            own = isinstance(error, UserError) or not self._others
            if self._broken.wait(0 if own else REASON_SECONDS):
                raise self._reason() from error
            raise
        if self._broken.is_set():
            raise self._reason()

    def _tell(self, other: Replica, *words: Any) -> None:
        try:
            other.connection.send(words)
        except OSError as error:
            self._broken.wait(REASON_SECONDS)
            raise self._reason() from error

    def _answer(self, other: Replica) -> Any:
        while True:
            try:
                return other.answers.get(timeout=0.1)
            except queue.Empty:
                if self._broken.is_set():
                    raise self._reason() from None

    def _reason(self) -> Exception:
        """The first that is no mere consequence of another one's end."""
        time.sleep(LAST_WORDS_SECONDS)
        own = (reason for reason in self._reasons if not isinstance(reason, PeerLost))
        return next(own, ReplicaDied("; ".join(map(str, self._reasons)) or "the replicas lost one another"))

    def _watch(self) -> None:
        """Read what the others say, until all are gone."""
        left = {other.connection: other for other in self._others}
        while left:
            for ready in wait(list(left)):
                other = left[ready]  # type: ignore[index]
                try:
                    said = other.connection.recv()
                except (EOFError, OSError):
                    left.pop(other.connection)
                    said = None if other.failed else ReplicaDied(other.death())
                if isinstance(said, Exception):
                    other.failed = True
                    self._reasons.append(said)
                    self._broken.set()
                    collectives.break_off()
                elif said is not None:
                    other.answers.put(said)

    def _end(self) -> None:
        """End them all. They own nothing, so nothing is lost."""
        for other in self._others:
            other.process.kill()
            other.process.wait()
        if self._watcher.is_alive():
            self._watcher.join()
        for other in self._others:
            other.connection.close()
        collectives.part_ways()
        shutil.rmtree(self._folder, ignore_errors=True)
