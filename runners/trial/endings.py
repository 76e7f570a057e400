"""From an exception to its class of failures, and from a trial's folder to what becomes of the trial."""

import errno
from contextlib import suppress

import torch

from grid.errors import UserError
from grid.store.failures import Failure
from grid.store.files import write_text
from grid.store.home import TrialFolder
from retrieval.data import DataError
from runners.training.replicas import ReplicaDied
from runners.training.trainer import NonFinite
from runners.trial.retries import Decision, decide

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


def decision(folder: TrialFolder, launch: str) -> Decision:
    """What becomes of a trial after its attempts so far."""
    return decide([(attempt.launch(), attempt.failure()) for attempt in folder.attempts()], launch)


def given_up(folder: TrialFolder, launch: str, trace: str = "") -> bool:
    """Whether a trial gets no further try in this launch; `error.txt` reports why, if it does not yet.

    Args:
        trace: for `error.txt`, above the message.
    """
    decided = decision(folder, launch)
    if decided.given_up is None:
        return False
    if not folder.error.exists():
        failed = [a for a in folder.attempts() if a.launch() == launch and a.failure() is decided.given_up]
        tries = f" ({decided.tries} attempts)" if decided.tries > 1 else ""
        with suppress(UserError):  # the disk that failed the trial takes no error either; the last attempt may have it
            write_text(folder.error, f"{trace}{decided.given_up}: {failed[-1].message()}{tries}\n")
    return True
