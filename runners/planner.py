"""Which trials are packed: those that differ in objective and seed alone, as many at a time as there are places."""

import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

from runners.jobs import Job
from runners.packs import alike, why_not

LEAST = 4
"""Trials of one seed from which on they may share a pack: what they share is their seed's batches."""

MOST = 64
"""Trials of one pack: each adds its weights, gradients and moments to the memory of one process."""


def packed(jobs: Sequence[Job], slots: int) -> list[Job]:
    """The same trials, in packs where they can be; first what is not packed.

    Args:
        slots: jobs that run at a time; each gets its part of the packs.
    """
    kept, groups = list[Job](), dict[object, dict[int, list[Job]]]()
    for job in jobs:
        settings = job.trials[0]
        if len(job.trials) > 1 or why_not(settings):
            kept.append(job)
        else:
            like = (alike(settings), job.home, job.machine, job.request, job.launched)
            groups.setdefault(like, {}).setdefault(settings.seed, []).append(job)
    for by_seed in groups.values():
        kept += [job for some in by_seed.values() if len(some) < LEAST for job in some]
        fused = [job for some in by_seed.values() if len(some) >= LEAST for job in some]
        count = max(min(slots, len(fused) // LEAST), math.ceil(len(fused) / MOST))
        kept += map(_joined, _parts(fused, count))
    return kept


def _parts(jobs: Sequence[Job], count: int) -> list[Sequence[Job]]:
    """So many parts of about one size, neighbours together."""
    cuts = [round(place * len(jobs) / count) for place in range(count + 1)] if count else []
    return [jobs[start:end] for start, end in pairwise(cuts)]


def _joined(jobs: Sequence[Job]) -> Job:
    trials, ids = (tuple(each for job in jobs for each in getattr(job, name)) for name in ("trials", "ids"))
    return replace(jobs[0], trials=trials, ids=ids, packed=True)
