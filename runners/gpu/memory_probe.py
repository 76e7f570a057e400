"""The memory probe: how much memory of a GPU the heaviest steps of a trial and its evaluation take."""

import tempfile
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import torch
from torch.nn.functional import normalize

import objectives
from grid.errors import UserError
from grid.objectives import OBJECTIVES
from grid.settings import ObjectiveSettings, TrialSettings
from grid.store import gpu_needs
from grid.store.gpu_needs import Need
from grid.store.home import Home, TrialFolder
from grid.store.speed_probes import speed_of
from retrieval.words.tokens import Tokens
from runners.gpu import cuda
from runners.training.inputs import Inputs, prepare, protocols_of
from runners.training.machine import Machine
from runners.training.trainer import Trainer

STEPS = 3
"""Steps of an epoch: from the second step on, the optimiser's moments take memory too."""


@dataclass(frozen=True)
class Sample:
    """A trial that represents all trials of its kind."""

    settings: TrialSettings
    machine: Machine

    @property
    def kind(self) -> str:
        return speed_of(self.settings)


@dataclass(frozen=True)
class Probed:
    """What the probe measured on a node.

    Args:
        devices: bytes and name of each GPU that torch sees there.
        needs: by kind of trials, on the smallest GPU.
        problem: why a trial does not fit on that GPU; empty where all fit.
    """

    devices: list[tuple[int, str]]
    needs: dict[str, Need]
    problem: str = ""


def probe(samples: Sequence[Sample], home: Home) -> Probed:
    """Measure the unknown needs on the smallest GPU that this process sees, and keep them in the runs folder.

    Call it in a process that ends afterwards: only that frees all the GPU memory that it takes.

    Raises:
        UserError: the data cannot be used.
    """
    if not torch.cuda.is_available():
        return Probed([], {})
    cuda.take_smallest()
    found, name = Probed(cuda.devices(), {}), torch.cuda.get_device_name()
    for sample in samples:
        need = gpu_needs.read(home, sample.kind).get(name)
        if need is None:
            free, total = torch.cuda.mem_get_info()
            try:
                need = _measure(sample)
            except torch.OutOfMemoryError:
                settings, taken = sample.settings, torch.cuda.max_memory_reserved()
                sizes = {"taken": taken, "free": free, "total": total}
                problem = gpu_needs.too_large(settings.recipe, settings.train.batch_size, name, **sizes)
                return replace(found, problem=str(problem))
            with suppress(UserError):  # a disk that is full now costs another measurement
                gpu_needs.remember(home, sample.kind, need)
        found.needs[sample.kind] = need
    return found


def _measure(sample: Sample) -> Need:
    torch.set_num_threads(sample.machine.threads)
    settings = heavy(sample.settings)
    settings = settings.model_copy(update={"objective": _heaviest_objective(settings, sample.machine.device)})
    inputs = longest(prepare(settings, sample.machine), STEPS * settings.train.batch_size)
    alone = cuda.peak_of(partial(train, settings, inputs))
    return Need(torch.cuda.get_device_name(), torch.cuda.mem_get_info()[1], cuda.context(), alone)


def heavy(settings: TrialSettings) -> TrialSettings:
    """The same trial, cut to the epochs that use most memory: backbone unfrozen, a warm-up epoch if there is any."""
    warmed = min(1, settings.train.warmup_epochs)
    short = {"epochs": 1 + warmed, "warmup_epochs": warmed, "frozen_epochs": 0, "ramp_epochs": 0}
    return settings.model_copy(update={"train": settings.train.model_copy(update=short)})


def longest(inputs: Inputs, count: int) -> Inputs:
    """The inputs cut to the longest training captions, without dropped words: no batch takes more memory."""
    tokens, split = inputs.tokens["train"], inputs.pairs.train
    rows = tokens.lengths.argsort(descending=True, stable=True)[:count].numpy()
    captions = [split.captions[row] for row in rows]
    train = replace(split, captions=captions, image_of_text=split.image_of_text[rows])
    whole = Tokens(tokens.ids[rows], tokens.lengths[rows])
    return replace(inputs, pairs=replace(inputs.pairs, train=train), tokens={**inputs.tokens, "train": whole})


def train(settings: TrialSettings, inputs: Inputs) -> None:
    """Train and test a trial in a temporary folder."""
    with tempfile.TemporaryDirectory(prefix="goalgrid-memory-") as name:
        trainer = Trainer(settings, inputs, TrialFolder(Path(name)))
        trainer.fit()
        trainer.by_protocols(protocols_of(settings))


def _heaviest_objective(settings: TrialSettings, device: torch.device) -> ObjectiveSettings:
    """The objective that takes the most memory: a kind's need then covers all its trials."""

    def cost(goal: ObjectiveSettings) -> int:
        objective = objectives.build(goal.name, variant=goal.variant, **goal.parameters).to(device)
        shape, owners = (settings.train.batch_size, settings.model.dim), torch.arange(settings.train.batch_size)
        image, text = (normalize(torch.randn(shape, device=device)).requires_grad_() for _ in range(2))
        return cuda.peak_of(lambda: objective(image, text, owners.to(device)).backward())

    return max([settings.objective, *(ObjectiveSettings(name=name) for name in OBJECTIVES)], key=cost)
