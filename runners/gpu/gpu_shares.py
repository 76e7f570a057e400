"""Shares of a GPU: what trials need of its memory, as the memory probe found; without that, recipes' shares count."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from grid.errors import UserError
from grid.settings import TrialSettings
from grid.store import gpu_needs
from grid.store.gpu_needs import Need
from grid.store.home import Home
from grid.store.speed_probes import speed_of
from runners.gpu.memory_probe import Found, Sample, probe

Needs = Mapping[str, Need]
"""By the kind of trials, as `probes.speed_of` tells them apart."""

OnGpus = Callable[..., list[Found]]
"""Calls a function with its arguments in a process of its own on each node that has a GPU."""


class Share(NamedTuple):
    """A share of a GPU.

    Args:
        gpu: what Ray is asked for.
        memory: the part of its memory that the process may allocate.
    """

    gpu: float
    memory: float


def measured(samples: Sequence[Sample], on_gpus: OnGpus, home: Home, say: Callable[[str], None]) -> Needs:
    """What trials like these need of the GPUs that there are, probed there where it is not known.

    Args:
        say: told what is measured, and what that leaves open.

    Raises:
        UserError: a trial does not fit on a GPU.
    """
    if not samples:
        return {}
    try:
        replies = on_gpus(probe, samples, home)
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


def least(replies: Iterable[Needs]) -> dict[str, Need]:
    """What each kind needs on the GPU with the least memory."""
    needs = dict[str, list[Need]]()
    for found in replies:
        for kind, need in found.items():
            needs.setdefault(kind, []).append(need)
    return {kind: gpu_needs.smallest(every) for kind, every in needs.items()}


def share_of(trials: Iterable[TrialSettings], needs: Needs) -> Share | None:
    """The share that the largest of these trials needs; None where the need of any is not known."""
    known = [needs.get(speed_of(settings)) for settings in trials]
    found = [need for need in known if need is not None]
    if len(found) < len(known):
        return None
    largest = max(found, key=Need.share)
    return Share(largest.share(), largest.bound(largest.share()))
