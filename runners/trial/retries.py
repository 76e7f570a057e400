"""Whether a trial is tried again or given up: a pure function of its attempts, this launch and the policy."""

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
    """Policy for failures of one class.

    Args:
        tries: how often this failure may happen in one launch before the trial is given up.
        advice: what a user can do about it.
        wait: seconds before the second try; each further wait is twice as long.
        alone: whether the next try has the machine for itself.
        at_once: whether the next try begins as soon as a process is free, not after all other jobs.
    """

    tries: int
    advice: str
    wait: float = 0.0
    alone: bool = False
    at_once: bool = False


POLICY = {Failure(name): Policy(**known) for name, known in catalog.toml("goalgrid.runners.trial", "retries").items()}


@dataclass(frozen=True)
class Decision:
    """Decision whether a trial is retried.

    Args:
        given_up: the failure whose tries are used up; None: the trial may be tried again.
        tries: how often that failure, or else the last one, happened in this launch.
        policy: of the next try.
    """

    given_up: Failure | None = None
    tries: int = 0
    policy: Policy = Policy(1, "", at_once=True)

    @property
    def wait(self) -> float:
        """Seconds before the next try."""
        return self.policy.wait * 2.0 ** (self.tries - 1)


def decide(attempts: Iterable[tuple[str, Failure | None]], launch: str) -> Decision:
    """Decide whether to retry a trial, from the launch of each of its `attempts` and its failure (None: no failure).

    Repeating the command is another launch, with new tries.

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
    """Blame the node for the death of an ended attempt, which then does not count as a try of its trial."""
    folder, launch = TrialFolder(attempt.folder.parent), attempt.launch()
    write_json(attempt.end, read_json(attempt.end) | {"outcome": Failure.SICK_NODE})
    if decision(folder, launch).given_up is None:
        folder.error.unlink(missing_ok=True)


def given_up(folder: TrialFolder, launch: str, trace: str = "") -> bool:
    """Return whether a trial has used up its tries in this launch; if so, `error.txt` gets the reason and the trace.

    Another launch may finish it meanwhile: a trial that is `done` has no error.
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
