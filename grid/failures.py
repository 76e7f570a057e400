"""Why attempts fail, and what each class gets: another try where one can help, a report at once where none can."""

from dataclasses import dataclass
from enum import StrEnum


class Failure(StrEnum):
    """The class of a failed attempt."""

    OUT_OF_MEMORY = "out-of-memory"
    NON_FINITE = "non-finite"
    TIMEOUT = "timeout"
    KILLED = "killed"
    PREEMPTED = "pre-empted"
    NODE_LOST = "node-lost"
    STORAGE = "storage"
    IMPORT = "import"
    DATA = "data"
    USER = "user-error"
    BUG = "bug"


@dataclass(frozen=True)
class Policy:
    """What a class of failures gets.

    Args:
        tries: attempts of one launch that may end so; after the last of them the trial is reported as failed.
        advice: what a user can do about it.
        wait: seconds before the second try; each further one waits twice as long.
        alone: whether another try has the device for itself.
    """

    tries: int
    advice: str
    wait: float = 0.0
    alone: bool = False


POLICY: dict[Failure, Policy] = {
    Failure.OUT_OF_MEMORY: Policy(
        2, "a larger resources.gpu or resources.cpu share, more resources.replicas, or a smaller batch", 2.0, True
    ),
    Failure.NON_FINITE: Policy(1, "a smaller train.lr or objective.tau; another try gives the same"),
    Failure.TIMEOUT: Policy(2, "its log shows where it hung; reliability.stall_minutes says for how long", 1.0),
    Failure.KILLED: Policy(3, "the system may be out of memory: fewer --jobs, or a larger resources.cpu", 1.0),
    Failure.PREEMPTED: Policy(20, "nothing: the same command goes on", 1.0),
    Failure.NODE_LOST: Policy(5, "look at that node; the trial moves to another", 1.0),
    Failure.STORAGE: Policy(3, "make room, or choose another folder with --runs", 2.0),
    Failure.IMPORT: Policy(1, "install what is missing on every node"),
    Failure.DATA: Policy(1, "goalgrid data check names every fault of a copy"),
    Failure.USER: Policy(1, "change the setting that is named"),
    Failure.BUG: Policy(1, "its log has the traceback"),
}
"""Each class with its policy."""
