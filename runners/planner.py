"""Which trials are packed: those that differ in objective and seed alone, as many at a time as there are places."""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise

from runners.jobs import Job, Request
from runners.packs import alike, why_not

LEAST = 4
"""Trials of one seed from which on they may share a pack: what they share is their seed's batches."""

MOST = 64
"""Trials of one pack: each adds its weights, gradients and moments to the memory of one process."""

Room = Callable[[Sequence[Job]], Request | None]
"""What a pack of these asks of the machine; None: there is no room for it."""


def packed(jobs: Sequence[Job], slots: int, room: Room = lambda jobs: jobs[0].request) -> list[Job]:
    """The same trials, in packs where they can be and have room; first what is not packed.

    Args:
        slots: jobs that run at a time; each gets its part of the packs.
    """
    kept, groups = list[Job](), dict[object, dict[int, list[Job]]]()
    for job in jobs:
        settings = job.trials[0]
        if len(job.trials) > 1 or job.machine.replicas > 1 or why_not(settings):
            kept.append(job)
        else:
            like = (alike(settings), job.home, job.machine, job.request, job.launched)
            groups.setdefault(like, {}).setdefault(settings.seed, []).append(job)
    for by_seed in groups.values():
        kept += [job for some in by_seed.values() if len(some) < LEAST for job in some]
        fused = [job for some in by_seed.values() if len(some) >= LEAST for job in some]
        kept += _with_room(fused, max(min(slots, len(fused) // LEAST), math.ceil(len(fused) / MOST)), room)
    return kept


def _with_room(jobs: Sequence[Job], count: int, room: Room) -> list[Job]:
    """Packs of about one size, so many or as many more as it takes to find room; the jobs as they are if none does."""
    while len(jobs) > (LEAST - 1) * count:
        parts = _parts(jobs, count)
        if all(map(room, parts)):
            return [_joined(part, request) for part in parts if (request := room(part))]
        count += 1
    return list(jobs)


def _parts(jobs: Sequence[Job], count: int) -> list[Sequence[Job]]:
    """So many parts of about one size, neighbours together."""
    cuts = [round(place * len(jobs) / count) for place in range(count + 1)] if count else []
    return [jobs[start:end] for start, end in pairwise(cuts)]


def _joined(jobs: Sequence[Job], request: Request) -> Job:
    trials, ids = (tuple(each for job in jobs for each in getattr(job, name)) for name in ("trials", "ids"))
    return replace(jobs[0], trials=trials, ids=ids, request=request, packed=True)
