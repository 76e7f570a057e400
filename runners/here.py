"""The in-process driver (`--here`): the same jobs one after the other, without Ray. For debugging, and for tests."""

import faulthandler
import os
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType

import torch

from grid.attempts import Attempt
from grid.home import Home
from runners.events import Report
from runners.jobs import Capacity, Job
from runners.stopping import Stop

HUNG = 3
"""Exit code of a process that ends itself because its trial hung: the grid is incomplete."""


class Here:
    """Runs each job in this process."""

    def __init__(self, stop: Stop) -> None:
        self.stop = stop

    def capacity(self) -> Capacity:
        cpus, gpus = os.cpu_count() or 1, torch.cuda.device_count()
        return Capacity(cpus, gpus, (cpus, gpus))

    def check(self, home: Home, mark: str, paths: Sequence[Path], patience: float) -> None: ...

    def __enter__(self) -> "Here":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    def run(self, jobs: Sequence[Job], report: Report, *, slots: int) -> None:
        for job in jobs:
            job.run(report, self.stop)

    def kill(self, attempt: Attempt) -> None:
        """End this process, which hangs; where it does stands in the attempt's log."""
        with attempt.log.open("a", encoding="utf-8") as log:
            faulthandler.dump_traceback(log)
        os._exit(HUNG)
