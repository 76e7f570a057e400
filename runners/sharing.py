"""How the workers of a launch share its jobs: each takes the next one that nobody has had; the folders tell which.

There is no dispatcher; the lock of an attempt keeps a trial from being trained twice.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from grid.failures import Failure
from grid.home import Home, State, TrialFolder
from runners.jobs import Job
from runners.stopping import Stop

GOES_ON = frozenset({Failure.KILLED, Failure.TIMEOUT, Failure.NODE_LOST, Failure.PREEMPTED})
"""Ends of attempts after which any worker goes on at once; other failures wait for the launch's next round."""


@dataclass(frozen=True)
class Offer:
    """A job for whoever comes first; plain values only, and light to look at.

    Args:
        ids: of its trials.
        tried: attempts at each of them before this was offered.
        job: as JSON.
    """

    home: str
    ids: tuple[str, ...]
    tried: tuple[int, ...]
    job: str

    @classmethod
    def of(cls, job: Job) -> "Offer":
        return cls(job.home, job.ids, tuple(map(len, job.attempts())), job.to_json())

    def left(self) -> TrialFolder | None:
        """Of the first of its trials that is not done."""
        return next((folder for folder in map(Home(Path(self.home)).trial, self.ids) if not folder.done.exists()), None)

    def open(self) -> bool:
        """Whether nobody has begun it since it was offered, or whoever had is gone without having finished."""
        folder = self.left()
        if folder is None:
            return False
        latest, home = folder.latest(), Home(Path(self.home))
        if latest is None or sum(len(home.trial(trial_id).attempts()) for trial_id in self.ids) == sum(self.tried):
            return True
        return folder.state() is State.INTERRUPTED and latest.failure() in GOES_ON


def share(offers: Sequence[Offer], run: Callable[[Job], None], stop: Stop) -> None:
    """Take one job after the other, each at most once, until none is open or it is asked to end."""
    left, taken = list(offers), True
    while taken:
        taken, waiting, left = False, left, []
        for offer in waiting:
            if stop.asked():
                return
            if offer.open():
                taken = True
                run(Job.from_json(offer.job))
            else:
                left.append(offer)
