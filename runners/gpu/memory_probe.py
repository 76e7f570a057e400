"""The memory probe: what the heaviest steps of a trial and its evaluation take of a GPU."""

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
"""Of an epoch: the second one has the optimiser's moments too."""


@dataclass(frozen=True)
class Sample:
    """A trial that stands for all of its kind."""

    settings: TrialSettings
    machine: Machine

    @property
    def kind(self) -> str:
        return speed_of(self.settings)


@dataclass(frozen=True)
class Found:
    """What a probe found on one node.

    Args:
        devices: bytes and name of each GPU there; none where torch sees none.
        needs: by kind, on the smallest of them.
        problem: why a trial does not fit on it; empty where all do.
    """

    devices: list[tuple[int, str]]
    needs: dict[str, Need]
    problem: str = ""


def probe(samples: Sequence[Sample], home: Home) -> Found:
    """Measure what is not known of these on the smallest GPU that this process sees, and keep it in the runs folder.

    To be called in a process that ends then: the GPU's memory that it takes comes back only so.

    Raises:
        UserError: the data cannot be used.
    """
    if not torch.cuda.is_available():
        return Found([], {})
    cuda.take_smallest()
    found = Found(cuda.devices(), {})
    for sample in samples:
        need = gpu_needs.known(home, sample.kind, cuda.name())
        if need is None:
            free, total = cuda.free_and_total()
            try:
                need = _measure(sample)
            except torch.OutOfMemoryError:
                settings, taken = sample.settings, cuda.allocated_at_peak()
                sizes = {"taken": taken, "free": free, "total": total}
                problem = gpu_needs.too_large(settings.recipe, settings.train.batch_size, cuda.name(), **sizes)
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
    return Need(cuda.name(), cuda.free_and_total()[1], cuda.context(), alone)


def heavy(settings: TrialSettings) -> TrialSettings:
    """The same in as few epochs as show the most that one takes: all that learns does, and on all negatives if ever."""
    warmed = min(1, settings.train.warmup_epochs)
    short = {"epochs": 1 + warmed, "warmup_epochs": warmed, "frozen_epochs": 0, "ramp_epochs": 0}
    return settings.model_copy(update={"train": settings.train.model_copy(update=short)})


def longest(inputs: Inputs, count: int) -> Inputs:
    """The same with so many captions to train on, the longest, and whole: no batch takes more memory."""
    tokens, split = inputs.tokens["train"], inputs.pairs.train
    rows = tokens.lengths.argsort(descending=True, stable=True)[:count].numpy()
    captions = [split.captions[row] for row in rows]
    train = replace(split, captions=captions, image_of_text=split.image_of_text[rows])
    whole = Tokens(tokens.ids.numpy()[rows], tokens.lengths.numpy()[rows])
    return replace(inputs, pairs=replace(inputs.pairs, train=train), tokens={**inputs.tokens, "train": whole})


def train(settings: TrialSettings, inputs: Inputs) -> None:
    """One trial from its first step to its test, in a folder that is thrown away."""
    with tempfile.TemporaryDirectory(prefix="goalgrid-memory-") as name:
        trainer = Trainer(settings, inputs, TrialFolder(Path(name)))
        trainer.fit()
        trainer.by_protocols(protocols_of(settings))


def _heaviest_objective(settings: TrialSettings, device: torch.device) -> ObjectiveSettings:
    """What takes the most memory of all objectives there are, so that a kind's need is that of any of its trials."""

    def cost(goal: ObjectiveSettings) -> int:
        objective = objectives.build(goal.name, variant=goal.variant, **goal.parameters).to(device)
        shape, owners = (settings.train.batch_size, settings.model.dim), torch.arange(settings.train.batch_size)
        image, text = (normalize(torch.randn(shape, device=device)).requires_grad_() for _ in range(2))
        return cuda.peak_of(lambda: objective(image, text, owners.to(device)).backward())

    return max([settings.objective, *(ObjectiveSettings(name=name) for name in OBJECTIVES)], key=cost)
