"""The classes of failures, by which `runners.trial.retries` decides whether a trial is tried again."""

from enum import StrEnum


class Failure(StrEnum):
    """The class of a failed attempt."""

    OUT_OF_MEMORY = "out-of-memory"
    DEVICE = "device-error"
    NON_FINITE = "non-finite"
    TIMEOUT = "timeout"
    KILLED = "killed"
    PREEMPTED = "pre-empted"
    NODE_LOST = "node-lost"
    SICK_NODE = "sick-node"
    STORAGE = "storage"
    IMPORT = "import"
    DATA = "data"
    USER = "user-error"
    BUG = "bug"
