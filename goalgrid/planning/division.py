"""How a launch divides jobs among GPUs: how many of the GPUs work, for how long, and how many are worth asking for."""

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
"""A launch is as fast as another that takes at most so many times its seconds."""


@dataclass(frozen=True)
class Division:
    """How jobs are divided among GPUs, as `runners.launch.jobs.requests_for` has Ray do it.

    Args:
        room: jobs that share a GPU at a time, at most.
        reserved: GPUs that a job holds, all of one host.
        used: GPUs of those on which it trains.
        piled: whether one GPU is filled before another gets a job: the grid sets the share.
        limit: jobs at a time; None: as many as have room.
    """

    room: int = 1
    reserved: int = 1
    used: int = 1
    piled: bool = False
    limit: int | None = None

    @classmethod
    def of(cls, resources: Resources, room: int, limit: int | None = None) -> "Division":
        """Divide jobs with these resources; `room` counts where they take the share that they need."""
        limit = limit or resources.concurrency
        if resources.shares_gpus:
            return cls(max(1, room), limit=limit)
        asked = resources.gpus(1.0) or 1.0
        reserved = max(1, math.ceil(asked))
        return cls(
            int(1 / min(asked, 1.0) + 1e-6), reserved, min(reserved, resources.replicas), piled=True, limit=limit
        )

    def at_a_time(self, jobs: int, places: int) -> int:
        """Jobs that run at the same time: those that share a GPU are divided evenly among the turns that they need."""
        most = min(jobs, places * self.room, self.limit or jobs)
        if self.piled or not most:
            return most
        return min(most, max(places, math.ceil(jobs / math.ceil(jobs / most))))

    def busy(self, jobs: Sequence[Span], gpus: int, hosts: int = 1) -> int:
        """Return how many GPUs work, of so many on each host.

        >>> jobs = [Span(1, 1)] * 24
        >>> Division(room=2).busy(jobs, 8, hosts=8), Division(room=4, piled=True).busy(jobs, 8, hosts=8)
        (24, 6)
        """
        return self._filled(len(jobs), self._places(gpus, hosts)) * self.used

    def clock(self, jobs: Sequence[Span], gpus: int, hosts: int = 1) -> Span:
        """Return the seconds until all jobs have ended, each started on the GPU with the least work.

        Args:
            jobs: GPU seconds of each, from those of a GPU that never waits to those of a job alone on a GPU.
        """
        return self._clock(jobs, self._places(gpus, hosts))

    def as_fast(self, jobs: Sequence[Span], gpus: int, hosts: int = 1) -> int:
        """Return the least number of GPUs with which the jobs end as early.

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
        """Places for jobs, each of as many GPUs as a job holds."""
        return gpus // self.reserved * hosts

    def _filled(self, jobs: int, places: int) -> int:
        """Places that get jobs."""
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
    """Say that fewer GPUs than so many on each host are enough for so many jobs.

    >>> enough_words(45, 8, 8, jobs=45)
    'as fast on 45 GPUs of 6 hosts for 45 jobs, each a trial or a chain of trials'
    """
    enough = counted(fewer, "GPU") + (of_hosts(gpus, math.ceil(fewer / gpus)) if hosts > 1 else "")
    return f"as fast on {enough} for {counted(jobs, 'job')}, each a trial or a chain of trials"


def of_hosts(gpus: int, hosts: int) -> str:
    """Say how many hosts have so many GPUs each; empty for a single host, or where each has one."""
    return f" of {hosts} hosts" if hosts > 1 and gpus > 1 else ""


def _parted(values: Iterable[T], parts: int, weight: Callable[[T], float]) -> list[list[T]]:
    """Divide the values among so many lists, each into that of the least weight so far.

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
