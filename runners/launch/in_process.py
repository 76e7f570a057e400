"""The in-process driver (`--here`): jobs one after the other in this process, without Ray; for debugging and tests."""

import faulthandler
import os
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Any

from grid.store.attempts import Attempt
from grid.store.home import Home
from runners.launch.driver import Capacity
from runners.launch.jobs import Job
from runners.launch.one_call_process import apart
from runners.launch.worker import work
from runners.trial.events import Listener
from runners.trial.stopping import INCOMPLETE, Stop


class InProcess:
    """Runs each job in this process."""

    def __init__(self, stop: Stop) -> None:
        self.stop = stop

    def capacity(self) -> Capacity:
        return Capacity.of_this_machine()

    def check(self, home: Home, mark: str, paths: Sequence[Path], patience: float) -> None: ...

    def __enter__(self) -> "InProcess":
        return self

    def __exit__(self, *_: object) -> None: ...

    def run(self, jobs: Sequence[Job], report: Listener, *, limit: int | None) -> None:
        for job in jobs:
            work(job, report, self.stop)

    def on_gpus(self, custom: Collection[str], function: Callable[..., Any], *arguments: Any) -> list[Any]:
        return [apart(function, *arguments)]

    def kill(self, attempt: Attempt) -> None:
        """End this process, which hangs; the attempt's log tells where."""
        with attempt.log.open("a", encoding="utf-8") as log:
            faulthandler.dump_traceback(log)
        os._exit(INCOMPLETE)
