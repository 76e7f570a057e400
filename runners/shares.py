"""Shares of a GPU: what jobs and packs ask for, from what the memory probe found or, without it, what recipes state."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

from grid import memory
from grid.errors import UserError
from grid.home import Home
from grid.memory import Need
from grid.probes import speed_of
from grid.running import Resources
from retrieval.stacked.model import LEAST as PLACES
from runners import planner
from runners.jobs import Driver, Job, Request
from runners.memory import Found, Sample, probe
from runners.packs import why_not
from runners.planner import Room

Needs = Mapping[str, Need]
"""By the kind of trials, as `probes.speed_of` tells them apart."""


def measured(
    driver: Driver, jobs: Sequence[Job], resources: Resources, home: Home, say: Callable[[str], None]
) -> Needs:
    """What these need of the GPUs that the driver has, probed there where it is not known.

    Args:
        say: told what is measured, and what that leaves open.

    Raises:
        UserError: a trial does not fit on a GPU.
    """
    wanted = samples(jobs, resources)
    if not wanted:
        return {}
    try:
        replies: list[Found] = driver.on_gpus(list(resources.custom), probe, wanted, home)
    except Exception as error:  # a share that is stated serves too
        reason = " ".join(str(error).split())[:300] or type(error).__name__
        say(f"the memory of trials could not be measured, so their recipes' shares of a GPU count: {reason}")
        return {}
    for found in replies:
        if found.problem:
            raise UserError(found.problem)
    if not any(found.needs for found in replies):
        say("torch sees no GPU where there should be one, so the recipes' shares of a GPU count")
    devices = sorted({device for found in replies for device in found.devices})
    if len(devices) > 1:
        names = ", ".join(f"{name} ({total / 1e9:.0f} GB)" for total, name in devices)
        say(f"different GPUs, of which the smallest decides the shares: {names}")
    return least(found.needs for found in replies)


def samples(jobs: Sequence[Job], resources: Resources) -> list[Sample]:
    """One trial of each kind whose memory has to be known.

    Where the grid states the share of a job, that counts, and only the size of packs depends on a measurement. Several
    replicas have a whole GPU each.
    """
    if resources.replicas > 1:
        return []
    count, first = Counter[str](), dict[str, Sample]()
    for job in jobs:
        for settings in job.trials if job.machine.gpu else ():
            kind = speed_of(settings)
            may = resources.pack and len(job.trials) == 1 and not why_not(settings)
            count[kind] += may
            first.setdefault(kind, Sample(settings, job.machine, packs=False))
    found = [replace(sample, packs=count[kind] >= planner.LEAST) for kind, sample in first.items()]
    return [sample for sample in found if sample.packs or resources.gpu is None]


def least(replies: Iterable[Needs]) -> dict[str, Need]:
    """Of each kind what was found on the GPU with the least memory."""
    needs = dict[str, list[Need]]()
    for found in replies:
        for kind, need in found.items():
            needs.setdefault(kind, []).append(need)
    return {kind: memory.smallest(each) for kind, each in needs.items()}


def sized(jobs: Sequence[Job], needs: Needs) -> list[Job]:
    """The jobs with the shares that their trials need, where these are known of all of a job's."""
    return [replace(job, request=_alone(job, needs)) for job in jobs]


def _alone(job: Job, needs: Needs) -> Request:
    known = [needs.get(speed_of(settings)) for settings in job.trials] if job.machine.gpu else []
    each = [need for need in known if need is not None]
    if not each or len(each) < len(known):
        return job.request
    largest = max(each, key=Need.share)
    return _asking(job.request, largest, largest.share())


def room(needs: Needs, resources: Resources) -> Room:
    """Tells what a pack asks for: the share that it needs; or the stated one, if that is enough."""

    def of(jobs: Sequence[Job]) -> Request | None:
        request, need, stated = jobs[0].request, needs.get(speed_of(jobs[0].trials[0])), resources.gpu
        if not jobs[0].machine.gpu:
            return request
        if need is None or need.pack is None:  # as much as its trials would get one by one
            share = memory.rounded_up(request.gpu * len(jobs))
            return request if stated else _asking(request, None, share) if share <= 1 else None
        seeds = Counter(job.trials[0].seed for job in jobs)
        share = max(need.share(), need.pack_share([max(PLACES, count) for count in seeds.values()]))
        if share > min(stated or 1.0, 1.0):
            return None
        return request if stated else _asking(request, need, share)

    return of


def _asking(request: Request, need: Need | None, share: float) -> Request:
    return replace(request, gpu=share, memory=need.bound(share) if need else share)
