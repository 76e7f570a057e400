"""Shares of a GPU: what jobs ask for, from what the memory probe found or, without it, what recipes state."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

from grid import memory
from grid.errors import UserError
from grid.home import Home
from grid.memory import Need
from grid.probes import speed_of
from grid.running import Resources
from runners.driver import Driver
from runners.jobs import Job, Request
from runners.memory import Found, Sample, probe

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
    """One trial of each kind whose memory has to be known; none where the share is stated, or a replica has a GPU."""
    if resources.gpu is not None or resources.replicas > 1:
        return []
    found = dict[str, Sample]()
    for job in jobs:
        for settings in job.trials if job.machine.gpu else ():
            found.setdefault(speed_of(settings), Sample(settings, job.machine))
    return list(found.values())


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
    return replace(job.request, gpu=largest.share(), memory=largest.bound(largest.share()))
