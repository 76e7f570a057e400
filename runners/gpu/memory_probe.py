"""The memory probe: measures the peak GPU memory of a trial's heaviest training steps and its evaluation."""

import gc
import tempfile
from collections.abc import Callable, Mapping
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import torch
from torch.nn.functional import normalize

from goalgrid import objectives
from goalgrid.grid.errors import UserError
from goalgrid.grid.groups import grouped
from goalgrid.grid.objectives import OURS
from goalgrid.grid.settings import ObjectiveSettings, TrialSettings
from goalgrid.grid.store import gpu_needs
from goalgrid.grid.store.gpu_needs import Need
from goalgrid.grid.store.home import Home, TrialFolder
from goalgrid.runners.training import training_methods
from goalgrid.runners.training.inputs import Inputs, prepare, protocols_of
from goalgrid.runners.training.machine import Machine, is_out_of_memory
from goalgrid.runners.training.trainer import Trainer

STEPS = 3
"""Steps per epoch in the probe; from the second step on, the optimiser's moments take memory too."""

CONTEXT = 2 * 2**30
"""Upper bound in bytes for a process's CUDA context and loaded kernels, in addition to tensors; memory beyond it
belongs to other processes."""

Samples = Mapping[str, TrialSettings]
"""A sample trial of each kind (see `speed_of`), keyed by kind."""
Needs = Mapping[str, Need]
"""GPU memory needs, keyed by kind of trial."""


@dataclass(frozen=True)
class Probed:
    """The result of the probe on one node."""

    devices: list[tuple[int, str]]
    """Memory in bytes and name of each GPU."""
    needs: dict[str, Need]
    """Needs on the smallest GPU, keyed by kind of trial."""
    problem: str = ""
    """Why a trial does not fit on that GPU; empty if all fit."""


def needs_of(
    samples: Samples, machine: Machine, on_gpus: Callable[..., list[Probed]], home: Home, say: Callable[[str], None]
) -> Needs:
    """Return the memory that each kind of trial needs on the smallest GPU; raise UserError if one does not fit.

    Args:
        machine: the resources of a trial.
        on_gpus: calls a function with arguments in a separate process on each node that has a GPU.
    """
    if not samples:
        return {}
    try:
        texts = {kind: settings.model_dump_json() for kind, settings in samples.items()}
        replies: list[Probed] = on_gpus(probe, texts, machine, home)
    except Exception as error:  # the recipe's share serves too
        reason = " ".join(str(error).split())[:300] or type(error).__name__
        say(f"the memory of trials could not be measured, so the GPU shares of their recipes are used: {reason}")
        return {}
    for node in replies:
        if node.problem:
            raise UserError(node.problem)
    if not any(node.needs for node in replies):
        say("torch does not see the expected GPU, so the GPU shares of the recipes are used")
    devices = sorted({device for node in replies for device in node.devices})
    if len(devices) > 1:
        names = ", ".join(f"{name} ({total / 1e9:.0f} GB)" for total, name in devices)
        say(f"the GPUs differ; shares are computed for the smallest: {names}")
    by_kind = grouped(item for node in replies for item in node.needs.items())
    return {kind: gpu_needs.smallest(found) for kind, found in by_kind.items()}


def probe(samples: Mapping[str, str], machine: Machine, home: Home) -> Probed:
    """Measure unknown needs on the smallest GPU of this process, and store them in the runs folder.

    The samples are JSON, since a new process must first register the plugins in the machine's catalog. Call it with
    `apart`: only the end of a process frees all its GPU memory. Raises UserError if the data cannot be used.
    """
    if not torch.cuda.is_available():
        return Probed([], {})
    gpus = map(torch.cuda.get_device_properties, range(torch.cuda.device_count()))
    report = Probed([(gpu.total_memory, gpu.name) for gpu in gpus], {})
    sizes = [total for total, _ in report.devices]
    torch.cuda.set_device(sizes.index(min(sizes)))
    name = torch.cuda.get_device_name()
    for kind, text in samples.items():
        settings = TrialSettings.model_validate_json(text, context=machine.catalog.context)
        need = gpu_needs.read(home, kind).get(name)
        if need is None:
            free, total = torch.cuda.mem_get_info()
            try:
                need = _measure(settings, machine)
            except Exception as error:
                if not is_out_of_memory(error):
                    raise
                recipe, batch = settings.recipe, settings.train.batch_size
                taken = torch.cuda.max_memory_reserved()
                problem = gpu_needs.too_large(recipe, batch, name, taken=taken, free=free, total=total)
                return replace(report, problem=str(problem))
            with suppress(UserError):  # a disk that is full now costs another measurement
                gpu_needs.remember(home, kind, need)
        report.needs[kind] = need
    return report


def _measure(settings: TrialSettings, machine: Machine) -> Need:
    machine.begin()
    settings = heavy(settings)
    settings = settings.model_copy(update={"objective": heaviest_objective(settings, machine.device)})
    inputs = with_stand_ins(settings, longest(prepare(settings, machine), STEPS * settings.train.batch_size))
    alone = peak_of(partial(train, settings, inputs))
    free, total = torch.cuda.mem_get_info()
    context = max(0, min(total - free - torch.cuda.memory_reserved(), CONTEXT))
    return Need(torch.cuda.get_device_name(), total, context, alone)


def apart(function: Callable[..., Any], *arguments: Any) -> Any:
    """Call a function in a new process, whose end frees all its GPU memory, including the CUDA context."""
    with ProcessPoolExecutor(1, get_context("spawn")) as pool:
        return pool.submit(function, *arguments).result()


def peak_of(work: Callable[[], object]) -> int:
    """Return the peak memory in bytes that `work` reserves for tensors, including fragmentation."""
    gc.collect()
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    work()
    return torch.cuda.max_memory_reserved()


def heavy(settings: TrialSettings) -> TrialSettings:
    """Shorten a trial to the epochs that use most memory: unfrozen backbone, and a warm-up epoch if it has any."""
    warmed = min(1, settings.train.warmup_epochs)
    short = {"epochs": 1 + warmed, "warmup_epochs": warmed, "frozen_epochs": 0, "ramp_epochs": 0, "captions": "all"}
    return trained_by(settings, **short)


def trained_by(settings: TrialSettings, **train: Any) -> TrialSettings:
    """Return the trial with these training settings replaced."""
    return settings.model_copy(update={"train": settings.train.model_copy(update=train)})


def longest(inputs: Inputs, count: int) -> Inputs:
    """Restrict the inputs to the `count` longest training captions, without word dropout, for maximum memory use."""
    tokens, split = inputs.tokens["train"], inputs.pairs.train
    rows = tokens.lengths.argsort(descending=True, stable=True)[:count].numpy()
    captions = [split.captions[row] for row in rows]
    train = replace(split, captions=captions, image_of_text=split.image_of_text[rows], matched=None)
    whole = tokens.of(rows)
    return replace(inputs, pairs=replace(inputs.pairs, train=train), tokens={**inputs.tokens, "train": whole})


def with_stand_ins(settings: TrialSettings, inputs: Inputs) -> Inputs:
    """Return the inputs with dummies for what training methods prepare."""
    return replace(inputs, prepared=training_methods.prepared(settings, lambda method: method.rehearsal(inputs.pairs)))


def train(settings: TrialSettings, inputs: Inputs) -> None:
    """Train and test a trial in a temporary folder."""
    with tempfile.TemporaryDirectory(prefix="goalgrid-memory-") as name:
        trainer = Trainer(settings, inputs, TrialFolder(Path(name)))
        trainer.fit()
        trainer.by_protocols(protocols_of(settings))


def heaviest_objective(settings: TrialSettings, device: torch.device) -> ObjectiveSettings:
    """Return the objective with the highest memory need among those of the same kind, which bounds all trials.

    With a set scorer, this is an objective on all negatives, since its scores need a graph. Objectives that need other
    components are of another kind.
    """
    present = settings.objective
    others = [name for name, entry in OURS.items() if name != present.name and entry.needs == present.needs]
    if not others:
        return present

    def cost(goal: ObjectiveSettings) -> tuple[bool, int]:
        objective = objectives.built(goal).to(device)
        shape, owners = (settings.train.batch_size, settings.model.dim), torch.arange(settings.train.batch_size)
        image, text = (normalize(torch.randn(shape, device=device)).requires_grad_() for _ in range(2))
        dense = settings.model.of_sets and not objective.learns_from_few
        return dense, peak_of(lambda: objective(image, text, owners.to(device)).backward())

    return max([present, *(ObjectiveSettings(name=name) for name in others)], key=cost)
