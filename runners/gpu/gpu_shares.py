"""Shares of a GPU, from the memory that the memory probe measured; without a measurement the recipe's share counts."""

from collections.abc import Callable, Mapping, Sequence

from goalgrid.grid.errors import UserError
from goalgrid.grid.store import gpu_needs
from goalgrid.grid.store.gpu_needs import Need
from goalgrid.grid.store.home import Home
from goalgrid.runners.gpu.memory_probe import Probed, Sample, probe

Needs = Mapping[str, Need]
"""The need of trials by their kind, which `speed_of` gives."""


def needs_of(
    samples: Sequence[Sample], on_gpus: Callable[..., list[Probed]], home: Home, say: Callable[[str], None]
) -> Needs:
    """The memory that trials of each kind need on the GPU with the least memory; unknown needs are measured.

    Args:
        on_gpus: calls a function with its arguments in a separate process on each node that has a GPU.

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
    needs = dict[str, list[Need]]()
    for node in replies:
        for kind, need in node.needs.items():
            needs.setdefault(kind, []).append(need)
    return {kind: gpu_needs.smallest(of_kind) for kind, of_kind in needs.items()}
