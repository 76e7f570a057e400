"""The retry policy: what becomes of a trial after each history of attempts, as a table of cases."""

from dataclasses import dataclass

import pytest

from goalgrid.grid.store.attempts import Failure
from goalgrid.runners.trial.retries import POLICY, Decision, decide

KILLED, MEMORY, STORAGE, BUG, LOST = (
    Failure.KILLED, Failure.OUT_OF_MEMORY, Failure.STORAGE, Failure.BUG, Failure.NODE_LOST,
)  # fmt: skip


@dataclass(frozen=True)
class Expected:
    """What a decision says."""

    given_up: Failure | None = None
    tries: int = 0
    wait: float = 0.0
    alone: bool = False
    at_once: bool = True


CASES = {
    "no attempt": ([], Expected()),
    "an attempt that runs": ([None], Expected()),
    "killed once": ([KILLED], Expected(None, 1, 1.0)),
    "killed twice: waits twice as long": ([KILLED, KILLED], Expected(None, 2, 2.0)),
    "killed three times": ([KILLED] * 3, Expected(KILLED, 3)),
    "out of memory: alone, after the other jobs": ([MEMORY], Expected(None, 1, 2.0, alone=True, at_once=False)),
    "out of memory twice": ([MEMORY, MEMORY], Expected(MEMORY, 2)),
    "a bug": ([BUG], Expected(BUG, 1)),
    "the disk was full, then killed: the last failure decides": ([STORAGE, KILLED], Expected(None, 1, 1.0)),
    "killed, then the disk was full": ([KILLED, STORAGE], Expected(None, 1, 2.0, at_once=False)),
    "classes count apart": ([KILLED, LOST, KILLED, LOST], Expected(None, 2, 2.0)),
    "given up, whatever came after": ([KILLED, KILLED, KILLED, LOST], Expected(KILLED, 3)),
    "an attempt that runs after a failure": ([KILLED, None], Expected(None, 1, 1.0)),
}


@pytest.mark.parametrize(("failures", "expected"), CASES.values(), ids=CASES)
def test_the_policy_decides(failures: list[Failure | None], expected: Expected) -> None:
    found = decide([("now", failure) for failure in failures], "now")
    policy = found.policy
    assert Expected(found.given_up, found.tries, found.wait, policy.alone, policy.at_once) == expected


POLICIES = {
    Failure.OUT_OF_MEMORY: Expected(None, 2, 2.0, alone=True, at_once=False),
    Failure.DEVICE: Expected(None, 2, 1.0),
    Failure.NON_FINITE: Expected(None, 1, 0.0, at_once=False),
    Failure.TIMEOUT: Expected(None, 2, 1.0),
    Failure.KILLED: Expected(None, 3, 1.0),
    Failure.PREEMPTED: Expected(None, 20, 1.0),
    Failure.NODE_LOST: Expected(None, 5, 1.0),
    Failure.SICK_NODE: Expected(None, 20, 0.0),
    Failure.STORAGE: Expected(None, 3, 2.0, at_once=False),
    Failure.IMPORT: Expected(None, 1, 0.0, at_once=False),
    Failure.DATA: Expected(None, 1, 0.0, at_once=False),
    Failure.USER: Expected(None, 1, 0.0, at_once=False),
    Failure.BUG: Expected(None, 1, 0.0, at_once=False),
}
"""How often a class may happen in one launch, and how long the second try waits."""


def test_the_policy_is_as_decided() -> None:
    """A scheduler may pre-empt a trial often, and a fault that another try repeats is tried once."""
    found = {failure: Expected(None, p.tries, p.wait, p.alone, p.at_once) for failure, p in POLICY.items()}
    assert found == POLICIES


@pytest.mark.parametrize("failure", list(Failure))
def test_every_class_has_a_policy_and_another_launch_gets_new_tries(failure: Failure) -> None:
    tries = POLICY[failure].tries
    assert decide([("now", failure)] * tries, "now").given_up is failure
    assert decide([("now", failure)] * (tries - 1), "now").given_up is None
    assert decide([("before", failure)] * tries, "now") == Decision()
    assert POLICY[failure].advice
