"""Replicas: processes that train a trial together with its main process, rank 0, which commands each step.

Only rank 0 handles folders, records and drivers, computes the ranks in validation, and makes all decisions. If another
replica dies or fails, the attempt ends; if rank 0 dies, the others notice the closed connection and end.
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
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from multiprocessing import Pipe
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

from goalgrid.grid.errors import UserError
from goalgrid.grid.settings import TrialSettings
from goalgrid.runners.training import checkpoints, exchange, replica_process
from goalgrid.runners.training.exchange import PeerLost
from goalgrid.runners.training.learner import Learner
from goalgrid.runners.training.machine import Machine

REASON_SECONDS = 5.0
"""Seconds to wait for the cause of a failed collective."""
LAST_WORDS_SECONDS = 0.3
"""Seconds to wait after the first error, since another replica may report the actual cause."""
ENDING_SECONDS = 5.0
"""Seconds that the other replicas may take to end once all have disconnected."""


class ReplicaDied(Exception):
    """A replica of this training is gone."""


@dataclass(eq=False)
class Replica:
    """A replica other than the first, in its own process."""

    rank: int
    process: subprocess.Popen[bytes]
    connection: "Connection[Any, Any]"
    answers: queue.SimpleQueue[Any] = field(default_factory=queue.SimpleQueue)
    """Answers that were received but not yet read."""
    ends: bool = False
    """Whether it was asked to end, or has reported why it ends."""

    @classmethod
    def start(cls, rank: int) -> "Replica":
        """Start a new interpreter; a fork would copy torch's locks, but not the threads that hold them."""
        ours, theirs = Pipe()
        main = replica_process.main
        script = f"from {main.__module__} import main; main({theirs.fileno()})"
        path = os.pathsep.join(folder or str(Path.cwd()) for folder in sys.path)
        process = subprocess.Popen(
            [sys.executable, "-P", "-c", script],
            pass_fds=[theirs.fileno()],
            stdin=subprocess.DEVNULL,
            stdout=2,  # what is printed there is the product of a command
            env={**os.environ, "PYTHONPATH": path},
            start_new_session=True,  # Ctrl-C is for the first replica, which asks all for a checkpoint
        )
        theirs.close()
        return cls(rank, process, ours)

    def death(self) -> str:
        """Return a message that says how the replica died."""
        code = self.process.wait()
        how = f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
        return f"replica {self.rank} of the training, process {self.process.pid}, died: {how}"


class Replicas:
    """The other replicas of a training, alive in the with-block; none if `resources.replicas` is 1.

    There is no timeout for a stuck replica; the launch's watchdog ends the trial.
    """

    def __init__(self, settings: TrialSettings, machine: Machine = Machine()) -> None:  # noqa: B008
        self.settings, self.machine = settings, machine
        self._others: list[Replica] = []
        self._reasons: list[Exception] = []
        self._broken = threading.Event()
        self._in_order = False
        """Whether the process group is initialised and the others wait for the next command."""
        self._watcher = threading.Thread(target=self._watch, name="replicas", daemon=True)

    @property
    def count(self) -> int:
        """Return the number of replicas, including rank 0."""
        return len(self._others) + 1

    def summary(self) -> str:
        """Return a text for the log with their number and process ids."""
        pids = ", ".join(str(other.process.pid) for other in self._others)
        return f"{self.count} replicas: this process, and {pids}"

    def __enter__(self) -> "Replicas":
        if self.machine.resources.replicas > 1:
            self._folder = Path(tempfile.mkdtemp(prefix="goalgrid-replicas-"))
            try:
                for rank in range(1, self.machine.resources.replicas):
                    self._others.append(Replica.start(rank))
            except BaseException:
                self._end()
                raise
            self._watcher.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._others:
            self._end()

    def start(self, learner: Learner, states: Sequence[dict[str, Any]], step: int) -> None:
        """Wait until all replicas have read the data, initialise the process group, and send them rank 0's state.

        `states` are the other replicas' random states by rank; a replica without one is seeded for this step.
        Raises UserError if a replica cannot read the data, ReplicaDied if one died.
        """
        if not self._others:
            return
        for other in self._others:
            self._tell(other, "prepare", other.rank, self.settings.model_dump_json(), self.machine)
        for other in self._others:
            self._answer(other)
        meeting, state = self._folder / "meeting", checkpoints.dumped(learner.state())
        self._tell_all("init", str(meeting))
        backend = self.machine.resources.exchange
        with self._whole():
            learner.group = exchange.init(0, self.count, meeting, learner.inputs.device, backend)
        for place, other in enumerate(self._others):
            random = checkpoints.dumped(states[place]) if place < len(states) else None
            self._tell(other, "start", state, random, step)
        self._in_order = True

    def begin(self, epoch: int, batch: int) -> None:
        """Tell the other replicas to begin an epoch at this batch."""
        self._tell_all("epoch", epoch, batch)

    @contextmanager
    def together(self, order: str) -> Iterator[None]:
        """Let the other replicas "step" or "validate" while the block runs; raise ReplicaDied if one died."""
        self._tell_all(order)
        with self._whole():
            yield

    def random_states(self) -> list[dict[str, Any]]:
        """Return the random states of the other replicas, in the order of their ranks."""
        self._tell_all("random")
        return [checkpoints.loaded(self._answer(other), self.machine.device) for other in self._others]

    @contextmanager
    def _whole(self) -> Iterator[None]:
        """Run the block; if another replica failed meanwhile, raise that error instead of the block's."""
        try:
            yield
        except Exception as error:
            self._in_order = False
            is_cause = isinstance(error, UserError) or not self._others
            if self._broken.wait(0 if is_cause else REASON_SECONDS):
                raise self._reason() from error
            raise
        if self._broken.is_set():
            raise self._reason()

    def _tell_all(self, *words: Any) -> None:
        for other in self._others:
            self._tell(other, *words)

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
        """Return the root cause: the first error that does not follow from another replica's end."""
        time.sleep(LAST_WORDS_SECONDS)
        causes = (reason for reason in self._reasons if not isinstance(reason, PeerLost))
        return next(causes, ReplicaDied("; ".join(map(str, self._reasons)) or "the replicas lost their connections"))

    def _watch(self) -> None:
        """Read answers and errors of the other replicas until all are gone."""
        alive = {other.connection: other for other in self._others}
        while alive:
            for ready in wait(list(alive)):
                other = alive[ready]  # type: ignore[index]
                try:
                    answer = other.connection.recv()
                except (EOFError, OSError):
                    alive.pop(other.connection)
                    answer = None if other.ends else ReplicaDied(other.death())
                if isinstance(answer, Exception):
                    other.ends = True
                    self._reasons.append(answer)
                    self._broken.set()
                    exchange.abort()
                elif answer is not None:
                    other.answers.put(answer)

    def _end(self) -> None:
        """Destroy the process group in all replicas, and kill those that do not end; no state is lost."""
        if self._in_order and not self._broken.is_set():
            for other in self._others:
                other.ends = True
                with suppress(OSError):
                    other.connection.send(("end",))
            exchange.destroy()
            until = time.monotonic() + ENDING_SECONDS
            for other in self._others:
                with suppress(subprocess.TimeoutExpired):
                    other.process.wait(max(0.0, until - time.monotonic()))
        for other in self._others:
            other.process.kill()
            other.process.wait()
        exchange.abort()
        if self._watcher.is_alive():
            self._watcher.join()
        for other in self._others:
            other.connection.close()
        exchange.destroy()
        shutil.rmtree(self._folder, ignore_errors=True)
