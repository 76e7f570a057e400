"""Shares of a GPU, from the memory that the memory probe measured; without a measurement the recipe's share counts."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from grid.errors import UserError
from grid.settings import TrialSettings
from grid.store import gpu_needs
from grid.store.gpu_needs import Need
from grid.store.home import Home
from grid.store.speed_probes import speed_of
from runners.gpu.memory_probe import Probed, Sample, probe

Needs = Mapping[str, Need]
"""The need of each kind of trials, by `speed_of`."""

OnGpus = Callable[..., list[Probed]]
"""Calls a function with its arguments in a separate process on each node that has a GPU."""


class Share(NamedTuple):
    """A share of a GPU.

    Args:
        gpu: requested from Ray.
        memory: the part of the GPU's memory that the process may allocate.
    """

    gpu: float
    memory: float


def measured(samples: Sequence[Sample], on_gpus: OnGpus, home: Home, say: Callable[[str], None]) -> Needs:
    """What trials like these samples need of the available GPUs, measured where it is not known yet.

    Args:
        say: called with messages for the user.

    Raises:
        UserError: a trial does not fit on a GPU.
    """
    if not samples:
        return {}
    try:
        replies = on_gpus(probe, samples, home)
    except Exception as error:  # the recipe's share serves too
        reason = " ".join(str(error).split())[:300] or type(error).__name__
        say(f"the memory of trials could not be measured, so their recipes' shares of a GPU count: {reason}")
        return {}
    for node in replies:
        if node.problem:
            raise UserError(node.problem)
    if not any(node.needs for node in replies):
        say("torch sees no GPU where there should be one, so the recipes' shares of a GPU count")
    devices = sorted({device for node in replies for device in node.devices})
    if len(devices) > 1:
        names = ", ".join(f"{name} ({total / 1e9:.0f} GB)" for total, name in devices)
        say(f"different GPUs, of which the smallest decides the shares: {names}")
    return least(node.needs for node in replies)


def least(replies: Iterable[Needs]) -> dict[str, Need]:
    """The need of each kind of trials on the GPU with the least memory."""
    needs = dict[str, list[Need]]()
    for reply in replies:
        for kind, need in reply.items():
            needs.setdefault(kind, []).append(need)
    return {kind: gpu_needs.smallest(of_kind) for kind, of_kind in needs.items()}


def share_of(trials: Iterable[TrialSettings], needs: Needs) -> Share | None:
    """The share that the largest of these trials needs; None where the need of a trial is unknown."""
    kinds = [speed_of(settings) for settings in trials]
    if any(kind not in needs for kind in kinds):
        return None
    largest = max((needs[kind] for kind in kinds), key=Need.share)
    return Share(largest.share(), largest.bound(largest.share()))
