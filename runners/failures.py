"""From an exception, or a dead process, to its class; and from a trial's attempts to whether another may help."""

import errno
from collections import Counter

import torch

from grid.errors import UserError
from grid.failures import POLICY, Failure
from grid.files import write_text
from grid.home import TrialFolder
from retrieval.data import DataError
from runners.replicas import ReplicaDied
from runners.trainer import NonFinite

_NO_MEMORY = ("can't allocate memory", "not enough memory", "out of memory")


def classify(error: BaseException) -> Failure:
    """The class of what a trial raised, or of what caused it."""
    chain = [error]
    while (cause := chain[-1].__cause__) is not None and cause not in chain:
        chain.append(cause)
    for link in chain:
        found = _class_of(link)
        if found is not None:
            return found
    return Failure.USER if isinstance(error, UserError) else Failure.BUG


def _class_of(error: BaseException) -> Failure | None:
    if isinstance(error, NonFinite):
        return Failure.NON_FINITE
    if isinstance(error, ReplicaDied):
        return Failure.KILLED
    if isinstance(error, DataError):
        return Failure.DATA
    if isinstance(error, MemoryError | torch.OutOfMemoryError):
        return Failure.OUT_OF_MEMORY
    if isinstance(error, RuntimeError) and any(words in str(error) for words in _NO_MEMORY):
        return Failure.OUT_OF_MEMORY
    if isinstance(error, OSError):
        return Failure.OUT_OF_MEMORY if error.errno == errno.ENOMEM else Failure.STORAGE
    return Failure.IMPORT if isinstance(error, ImportError) else None


def given_up(folder: TrialFolder, launch: str, trace: str = "") -> bool:
    """Whether a trial failed as often in this launch as the policy of its failures allows; `error.txt` says so then.

    Args:
        launch: whose attempts count; a user who gives the command again gets new tries.
        trace: for `error.txt`, above the message.
    """
    ended = _failures(folder, launch)
    counts = Counter(failure for failure, _ in ended)
    for failure, message in reversed(ended):
        if counts[failure] >= POLICY[failure].tries:
            tries = f" ({counts[failure]} attempts)" if counts[failure] > 1 else ""
            if not folder.error.exists():
                _leave_error(folder, f"{trace}{failure}: {message}{tries}\n")
            return True
    return False


def pause(folder: TrialFolder, launch: str) -> float:
    """Seconds to wait before the next try: twice as long after each that ended alike."""
    ended = [failure for failure, _ in _failures(folder, launch)]
    return POLICY[ended[-1]].wait * 2.0 ** (ended.count(ended[-1]) - 1) if ended else 0.0


def alone(folder: TrialFolder, launch: str) -> bool:
    """Whether the next try has the device for itself."""
    ended = _failures(folder, launch)
    return bool(ended) and POLICY[ended[-1][0]].alone


def _failures(folder: TrialFolder, launch: str) -> list[tuple[Failure, str]]:
    """How the attempts of a launch failed, in their order."""
    own = (attempt for attempt in folder.attempts() if attempt.made_by(launch))
    return [(failure, attempt.message()) for attempt in own if (failure := attempt.failure())]


def _leave_error(folder: TrialFolder, text: str) -> None:
    try:
        write_text(folder.error, text)
    except UserError:
        return  # the disk that failed the trial cannot take its error either; its last attempt may have it
