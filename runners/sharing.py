"""How the workers of a launch share its jobs: each takes the next one that nobody has had; the folders tell which.

No worker idles while a job is left, and nobody hands jobs out: that a trial has one trainer is what attempts are for.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from grid.failures import Failure
from grid.home import Home, State
from runners.jobs import Job
from runners.stopping import Stop

GOES_ON = frozenset({Failure.KILLED, Failure.TIMEOUT, Failure.NODE_LOST, Failure.PREEMPTED})
"""Ends of attempts after which any worker goes on at once; other failures wait for the launch's next round."""


@dataclass(frozen=True)
class Offer:
    """A job for whoever comes first; plain values only, and light to look at.

    Args:
        ids: of its trials.
        tried: attempts at them before this was offered.
        job: as JSON.
    """

    home: str
    ids: tuple[str, ...]
    tried: int
    job: str

    @classmethod
    def of(cls, job: Job) -> "Offer":
        return cls(job.home, job.ids, job.attempts(), job.to_json())

    def open(self) -> bool:
        """Whether nobody has begun it since it was offered, or whoever had is gone without having finished."""
        home = Home(Path(self.home))
        folder = next((folder for folder in map(home.trial, self.ids) if not folder.done.exists()), None)
        if folder is None:
            return False
        latest = folder.latest()
        if latest is None or sum(len(home.trial(trial_id).attempts()) for trial_id in self.ids) == self.tried:
            return True
        return folder.state() is State.INTERRUPTED and latest.failure() in GOES_ON


def share(offers: Sequence[Offer], run: Callable[[Job], None], stop: Stop) -> None:
    """Take one job after the other, each at most once, until none is open or it is asked to end."""
    had = set[int]()
    before = -1
    while before < len(had):
        before = len(had)
        for place, offer in enumerate(offers):
            if stop.asked():
                return
            if place not in had and offer.open():
                had.add(place)
                run(Job.from_json(offer.job))
