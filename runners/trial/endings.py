"""The class of a failure, from the exception; and whether a trial is tried again, from its folder."""

import errno
from contextlib import suppress

from goalgrid.grid.errors import UserError
from goalgrid.grid.settings.own_parts import WrongReturn
from goalgrid.grid.store.attempts import Attempt
from goalgrid.grid.store.failures import Failure
from goalgrid.grid.store.files import read_json, write_json, write_text
from goalgrid.grid.store.home import TrialFolder
from goalgrid.retrieval.splits.pairs import DataError
from goalgrid.runners.training.machine import is_device_error, is_out_of_memory
from goalgrid.runners.training.replicas import ReplicaDied
from goalgrid.runners.training.trainer import NonFinite
from goalgrid.runners.trial.retries import Decision, decide

_CLASSES: dict[type[BaseException], Failure] = {
    NonFinite: Failure.NON_FINITE,
    ReplicaDied: Failure.KILLED,
    DataError: Failure.DATA,
    ImportError: Failure.IMPORT,
    WrongReturn: Failure.BUG,
}


def classify(error: BaseException) -> Failure:
    """The class of an exception that a trial raised, or of its cause."""
    chain = [error]
    while (cause := chain[-1].__cause__) is not None and cause not in chain:
        chain.append(cause)
    known = (failure for link in chain if (failure := _class_of(link)))
    return next(known, Failure.USER if isinstance(error, UserError) else Failure.BUG)


def _class_of(error: BaseException) -> Failure | None:
    for kind, failure in _CLASSES.items():
        if isinstance(error, kind):
            return failure
    if is_out_of_memory(error):
        return Failure.OUT_OF_MEMORY
    if is_device_error(error):
        return Failure.DEVICE
    if isinstance(error, OSError):
        return Failure.OUT_OF_MEMORY if error.errno == errno.ENOMEM else Failure.STORAGE
    return None


def decision(folder: TrialFolder, launch: str) -> Decision:
    """Whether and how a trial is tried again after its attempts so far."""
    return decide([(attempt.launch(), attempt.failure()) for attempt in folder.attempts()], launch)


def blame_node(attempt: Attempt) -> None:
    """Blame the node for the death of an ended attempt, which then does not count as a try of its trial."""
    folder, launch = TrialFolder(attempt.folder.parent), attempt.launch()
    write_json(attempt.end, read_json(attempt.end) | {"outcome": Failure.SICK_NODE})
    if decision(folder, launch).given_up is None:
        folder.error.unlink(missing_ok=True)


def given_up(folder: TrialFolder, launch: str, trace: str = "") -> bool:
    """Whether a trial has used up its tries in this launch; if so, `error.txt` says why, below the trace.

    Another launch may train it meanwhile: beside `done` stands no error.
    """
    decided = decision(folder, launch)
    if decided.given_up is None:
        return False
    if not folder.error.exists() and not folder.is_done():
        failed = [a for a in folder.attempts() if a.launch() == launch and a.failure() is decided.given_up]
        tries = f" ({decided.tries} attempts)" if decided.tries > 1 else ""
        with suppress(UserError):  # the disk that failed the trial may refuse this too; the attempt may hold the reason
            write_text(folder.error, f"{trace}{decided.given_up}: {failed[-1].message()}{tries}\n")
    return True
