"""Simulate how a launch divides jobs among GPUs: how many are busy, for how long, and how many are enough."""

import heapq
import math
from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from goalgrid.grid.errors import counted
from goalgrid.grid.resources import Resources
from goalgrid.planning.costs import Span

T = TypeVar("T")

AS_FAST = 1.01
"""Factor on the wall time within which two launches count as equally fast."""


@dataclass(frozen=True)
class Division:
    """How Ray divides jobs among GPUs, given the requests of `runners.launch.jobs.requests_for`.

    Args:
        room: maximum number of jobs that share a GPU.
        reserved: GPUs that a job holds, all of one host.
        used: how many of these it trains on.
        piled: whether one GPU is filled before the next gets a job, since the grid sets the share.
        limit: maximum number of concurrent jobs; None: as many as have room.
    """

    room: int = 1
    reserved: int = 1
    used: int = 1
    piled: bool = False
    limit: int | None = None

    @classmethod
    def of(cls, resources: Resources, room: int, limit: int | None = None) -> "Division":
        """Return the division of jobs with these resources; `room` applies if jobs share GPUs by what they need."""
        limit = limit or resources.concurrency
        if resources.shares_gpus:
            return cls(max(1, room), limit=limit)
        asked = resources.gpus(1.0) or 1.0
        reserved = max(1, math.ceil(asked))
        return cls(
            int(1 / min(asked, 1.0) + 1e-6), reserved, min(reserved, resources.replicas), piled=True, limit=limit
        )

    def at_a_time(self, jobs: int, places: int) -> int:
        """Return the number of concurrent jobs; jobs that share GPUs are spread evenly over the rounds they need."""
        most = min(jobs, places * self.room, self.limit or jobs)
        if self.piled or not most:
            return most
        return min(most, max(places, math.ceil(jobs / math.ceil(jobs / most))))

    def busy(self, jobs: Sequence[Span], gpus: int, hosts: int = 1) -> int:
        """Return how many GPUs are busy; `gpus`: GPUs per host.

        >>> jobs = [Span(1, 1)] * 24
        >>> Division(room=2).busy(jobs, 8, hosts=8), Division(room=4, piled=True).busy(jobs, 8, hosts=8)
        (24, 6)
        """
        return self._filled(len(jobs), self._places(gpus, hosts)) * self.used

    def clock(self, jobs: Sequence[Span], gpus: int, hosts: int = 1) -> Span:
        """Return the seconds until all jobs have ended, each started on the GPU with the least work.

        Args:
            jobs: GPU seconds of each, from a GPU that never waits to a job that is alone on its GPU.
        """
        return self._clock(jobs, self._places(gpus, hosts))

    def as_fast(self, jobs: Sequence[Span], gpus: int, hosts: int = 1) -> int:
        """Return the smallest number of GPUs with which the jobs end equally early.

        >>> Division(room=2).as_fast([Span(1, 1)] * 45, 64), Division(room=2).as_fast([Span(1, 1)] * 45, 8)
        (45, 8)
        """
        most = self._places(gpus, hosts)
        bound = self._clock(jobs, most) * AS_FAST

        def enough(places: int) -> bool:
            clock = self._clock(jobs, places)
            return clock.least <= bound.least and clock.most <= bound.most

        return bisect_left(range(most), True, key=enough) * self.reserved

    def _places(self, gpus: int, hosts: int) -> int:
        """Return the number of places for jobs, each with as many GPUs as a job holds."""
        return gpus // self.reserved * hosts

    def _filled(self, jobs: int, places: int) -> int:
        """Return the number of places that get jobs."""
        together = self.at_a_time(jobs, places)
        return min(places, math.ceil(together / self.room) if self.piled else together)

    def _clock(self, jobs: Sequence[Span], places: int) -> Span:
        if not (filled := self._filled(len(jobs), places)):
            return Span(math.inf, math.inf) if jobs else Span(0, 0)
        sharing, ends = math.ceil(self.at_a_time(len(jobs), places) / filled), list[Span]()
        for there in _parted(jobs, filled, sum):
            least, slots = sum(job.least for job in there), _parted([job.most for job in there], sharing, float)
            ends.append(Span(least, max(least, *map(sum, slots))) * (1 / self.used))
        return Span(max(end.least for end in ends), max(end.most for end in ends))


def enough_words(fewer: int, gpus: int, hosts: int, jobs: int) -> str:
    """Say that fewer GPUs are enough for these jobs; `gpus`: GPUs per host.

    >>> enough_words(45, 8, 8, jobs=45)
    'as fast on 45 GPUs of 6 hosts for 45 jobs, each a trial or a chain of trials'
    """
    enough = counted(fewer, "GPU") + (of_hosts(gpus, math.ceil(fewer / gpus)) if hosts > 1 else "")
    return f"as fast on {enough} for {counted(jobs, 'job')}, each a trial or a chain of trials"


def of_hosts(gpus: int, hosts: int) -> str:
    """Return ` of N hosts`; empty for a single host, or if each host has one GPU."""
    return f" of {hosts} hosts" if hosts > 1 and gpus > 1 else ""


def _parted(values: Iterable[T], parts: int, weight: Callable[[T], float]) -> list[list[T]]:
    """Distribute the values over `parts` lists, each to the list with the smallest weight so far.

    >>> _parted([1, 1, 1, 5, 1], 2, float)
    [[1, 1, 1], [1, 5]]
    """
    lists: list[list[T]] = [[] for _ in range(parts)]
    heap = [(0.0, place) for place in range(parts)]
    for value in values:
        sum_, place = heap[0]
        lists[place].append(value)
        heapq.heapreplace(heap, (sum_ + weight(value), place))
    return lists
