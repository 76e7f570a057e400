"""The speed probe: times a few steps and a validation in a temporary folder, to estimate the cost of trials."""

import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from statistics import quantiles

import torch

from goalgrid.grid.expansion import Trial
from goalgrid.grid.gridfile import Grid
from goalgrid.grid.messages import tell
from goalgrid.grid.settings import TrialSettings
from goalgrid.grid.store.files import write_json
from goalgrid.grid.store.home import Home, TrialFolder
from goalgrid.grid.store.speed_probes import Probe, speed_of
from goalgrid.runners.gpu import memory_probe
from goalgrid.runners.gpu.memory_probe import apart, trained_by, with_stand_ins
from goalgrid.runners.launch.feature_extraction import check_inputs, compute_features
from goalgrid.runners.launch.jobs import jobs_for, machine_for, samples
from goalgrid.runners.training import checkpoints
from goalgrid.runners.training.inputs import batches, prepare
from goalgrid.runners.training.machine import Machine
from goalgrid.runners.training.replicas import Replicas
from goalgrid.runners.training.trainer import Hooks, Preempted, Trainer
from goalgrid.runners.watching.view import View

STEPS = 20
WARMING = 3
"""Number of warm-up steps, which are not timed."""

RANK = 4
"""Uncompressed bytes per test query's rank in the record."""


def probe(grid: Grid, trials: Sequence[Trial], home: Home, view: View) -> list[Probe]:
    """Measure these trials in this process; features of frozen backbones are computed and cached, as in a launch."""
    gpus = torch.cuda.device_count()
    jobs = [job for trial in trials for job in jobs_for(grid, [trial], home, gpus=gpus)]
    check_inputs(jobs)
    compute_features(jobs, view)
    return [measure(job.trials[0], job.machine) for job in jobs]


def probe_memory(grid: Grid, trials: Sequence[Trial], home: Home, view: View) -> None:
    """Measure the GPU memory that trials need, and store it in the runs folder; raise UserError if one does not fit."""
    gpus = torch.cuda.device_count()
    jobs = jobs_for(grid, trials, home, gpus=gpus) if gpus else []
    check_inputs(jobs)
    compute_features(jobs, view)
    memory_probe.needs_of(samples(jobs), machine_for(grid, home, gpu=True), lambda *call: [apart(*call)], home, tell)


def measure(settings: TrialSettings, machine: Machine) -> Probe:
    """Train a few steps, validate once, and measure the size of the files."""
    machine.begin()
    inputs, times = with_stand_ins(settings, prepare(settings, machine)), list[float]()
    probed = trained_by(settings, frozen_epochs=0)  # as in most epochs

    def beat(step: int) -> bool:
        if step >= len(times):
            times.append(time.monotonic())
        return step >= STEPS + WARMING

    hooks = Hooks(begin=lambda step: times.append(time.monotonic()), beat=beat)
    with tempfile.TemporaryDirectory(prefix="goalgrid-probe-") as name, Replicas(probed, machine) as replicas:
        folder = TrialFolder(Path(name))
        trainer = Trainer(probed, inputs, folder, hooks=hooks, replicas=replicas)
        with suppress(Preempted):
            trainer.fit()
        started = time.monotonic()
        trainer.evaluate("val")
        evaluation = time.monotonic() - started
        checkpoints.save(folder.best_checkpoint, {"row": {}, "model": trainer.model.weights()})
        write_json(folder.vocabulary, inputs.reader.content, durable=False)
        best, words = folder.best_checkpoint.stat().st_size, folder.vocabulary.stat().st_size
    seconds = [after - before for before, after in pairwise(times)]
    seconds = seconds[WARMING:] or seconds
    lower, _, upper = quantiles(seconds, n=4) if len(seconds) > 1 else seconds * 3
    return Probe(
        dataset=settings.dataset.name, recipe=settings.recipe, settings=speed_of(settings), steps=len(seconds),
        least=lower, most=upper, evaluation=evaluation, epoch_steps=len(batches(settings, inputs, 0)),
        best=best, rest=words + RANK * (len(inputs.pairs.test.images) + len(inputs.pairs.test.captions)),
        gpu=machine.device.type == "cuda",
    )  # fmt: skip
