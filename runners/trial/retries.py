"""Decides whether a trial is retried or given up: a pure function of its attempts, the launch and the policy."""

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass

from goalgrid.grid import catalog
from goalgrid.grid.errors import UserError
from goalgrid.grid.store.attempts import Attempt, Failure
from goalgrid.grid.store.files import read_json, write_json, write_text
from goalgrid.grid.store.home import TrialFolder


@dataclass(frozen=True)
class Policy:
    """Retry policy for one failure class.

    Args:
        tries: number of times this failure may occur in one launch before the trial is given up.
        advice: what the user can do.
        wait: seconds before the second try; doubles with each further try.
        alone: whether the next try runs without other jobs on the machine.
        at_once: whether the next try starts as soon as a process is free, rather than after all other jobs.
    """

    tries: int
    advice: str
    wait: float = 0.0
    alone: bool = False
    at_once: bool = False


POLICY = {Failure(name): Policy(**known) for name, known in catalog.toml("goalgrid.runners.trial", "retries").items()}


@dataclass(frozen=True)
class Decision:
    """The decision whether a trial is retried.

    Args:
        given_up: the failure class that has used up its tries; None: the trial may be retried.
        tries: number of times that failure (or, if not given up, the last one) occurred in this launch.
        policy: the policy of the next try.
    """

    given_up: Failure | None = None
    tries: int = 0
    policy: Policy = Policy(1, "", at_once=True)

    @property
    def wait(self) -> float:
        """Return the seconds to wait before the next try."""
        return self.policy.wait * 2.0 ** (self.tries - 1)


def decide(attempts: Iterable[tuple[str, Failure | None]], launch: str) -> Decision:
    """Decide whether to retry a trial, given the launch and failure (None: no failure) of each of its `attempts`.

    Running the command again is a new launch, with new tries.

    >>> decide([("monday", Failure.KILLED)], "monday").wait
    1.0
    >>> decide([("monday", Failure.BUG)], "monday").given_up
    <Failure.BUG: 'bug'>
    >>> decide([("monday", Failure.BUG)], "tuesday").given_up
    """
    failures = [failure for made_by, failure in attempts if made_by == launch and failure]
    for failure in reversed(failures):
        if failures.count(failure) >= POLICY[failure].tries:
            return Decision(failure, failures.count(failure))
    return Decision(None, failures.count(failures[-1]), POLICY[failures[-1]]) if failures else Decision()


def decision(folder: TrialFolder, launch: str) -> Decision:
    """Decide whether and how a trial is retried after its attempts so far."""
    return decide([(attempt.launch(), attempt.failure()) for attempt in folder.attempts()], launch)


def blame_node(attempt: Attempt) -> None:
    """Attribute the death of an ended attempt to the node, so that it does not count as a try of its trial."""
    folder, launch = TrialFolder(attempt.folder.parent), attempt.launch()
    write_json(attempt.end, read_json(attempt.end) | {"outcome": Failure.SICK_NODE})
    if decision(folder, launch).given_up is None:
        folder.error.unlink(missing_ok=True)


def given_up(folder: TrialFolder, launch: str, trace: str = "") -> bool:
    """Return whether a trial has used up its tries in this launch; if so, write reason and trace to `error.txt`.

    Another launch may finish the trial meanwhile; then no error is written.
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
