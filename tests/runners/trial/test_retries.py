"""The retry policy: what becomes of a trial after each history of attempts, as a table of cases."""

import pytest

from grid.store.failures import Failure
from runners.trial.retries import POLICY, Decision, Policy, decide

KILLED, MEMORY, STORAGE, BUG, LOST = (
    Failure.KILLED, Failure.OUT_OF_MEMORY, Failure.STORAGE, Failure.BUG, Failure.NODE_LOST,
)  # fmt: skip
SOME: dict[Failure, Policy] = {
    KILLED: Policy(3, "", wait=1.0, at_once=True),
    MEMORY: Policy(2, "", wait=2.0, alone=True),
    STORAGE: Policy(3, "", wait=2.0),
    LOST: Policy(5, "", wait=1.0, at_once=True),
    BUG: Policy(1, ""),
}

CASES = {
    "no attempt": ([], Decision()),
    "an attempt that runs": ([None], Decision()),
    "killed once": ([KILLED], Decision(None, 1, 1.0, at_once=True)),
    "killed twice: waits twice as long": ([KILLED, KILLED], Decision(None, 2, 2.0, at_once=True)),
    "killed three times": ([KILLED] * 3, Decision(KILLED, 3)),
    "out of memory: alone, after the other jobs": ([MEMORY], Decision(None, 1, 2.0, alone=True, at_once=False)),
    "out of memory twice": ([MEMORY, MEMORY], Decision(MEMORY, 2)),
    "a bug": ([BUG], Decision(BUG, 1)),
    "the disk was full, then killed: the last failure decides": (
        [STORAGE, KILLED],
        Decision(None, 1, 1.0, at_once=True),
    ),
    "killed, then the disk was full": ([KILLED, STORAGE], Decision(None, 1, 2.0, at_once=False)),
    "classes count apart": ([KILLED, LOST, KILLED, LOST], Decision(None, 2, 2.0, at_once=True)),
    "given up, whatever came after": ([KILLED, KILLED, KILLED, LOST], Decision(KILLED, 3)),
    "an attempt that runs after a failure": ([KILLED, None], Decision(None, 1, 1.0, at_once=True)),
}


@pytest.mark.parametrize(("failures", "expected"), CASES.values(), ids=CASES)
def test_the_policy_decides(failures: list[Failure | None], expected: Decision) -> None:
    assert decide([("now", failure) for failure in failures], "now", SOME) == expected


@pytest.mark.parametrize("failure", list(Failure))
def test_every_class_has_a_policy_and_another_launch_gets_new_tries(failure: Failure) -> None:
    tries = POLICY[failure].tries
    assert decide([("now", failure)] * tries, "now").given_up is failure
    assert decide([("now", failure)] * (tries - 1), "now").given_up is None
    assert decide([("before", failure)] * tries, "now") == Decision()
    assert POLICY[failure].advice
