"""Trial folders in every state, as processes leave them."""

import json
import os
import socket
import time
from typing import Any

from goalgrid.grid.store import processes
from goalgrid.grid.store.attempts import Attempt, Failure
from goalgrid.grid.store.home import TrialFolder


def attempt(folder: TrialFolder, **different: Any) -> Attempt:
    """A further attempt at a trial, made by a live process, which started this process, but for what is different."""
    lease = {
        "launch": "a-launch",
        "machine": processes.machine(),
        "host": socket.gethostname(),
        "pid": os.getppid(),
        "started": processes.started(os.getppid()),
        "heartbeat": time.time(),
        "step": 7,
    }
    made = Attempt(folder.attempts_folder, len(folder.attempts()) + 1)
    made.folder.mkdir(parents=True, exist_ok=True)
    made.lease.write_text(json.dumps(lease | different))
    made.log.write_text("what it said\n")
    return made


def fail(folder: TrialFolder, failure: Failure, message: str) -> Attempt:
    """Fail a trial for good."""
    folder.done.unlink(missing_ok=True)
    made = attempt(folder)
    made.end.write_text(json.dumps({"outcome": failure, "message": message, "step": 7}))
    folder.settings.touch()
    folder.error.write_text(f"{failure}: {message}\n")
    return made


def interrupt(folder: TrialFolder, *, epoch: int, step: int) -> None:
    """Leave a trial as one that was asked to end at this step, after so many epochs."""
    folder.done.unlink(missing_ok=True)
    attempt(folder).end.write_text(json.dumps({"outcome": Failure.PREEMPTED, "message": "", "step": step}))
    folder.settings.touch()
    folder.last_checkpoint.write_bytes(b"weights")
    rows = [{"epoch": number, "step": 10 * number} for number in range(1, epoch + 1)]
    folder.history.write_text("".join(json.dumps(row) + "\n" for row in rows))
