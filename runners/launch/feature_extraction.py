"""Prepare a launch before any trial: open all data sets, find all weights, run all frozen networks."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch

from goalgrid.grid.expansion import Cell, trials_of
from goalgrid.grid.gridfile import Grid
from goalgrid.grid.messages import tell, warn
from goalgrid.grid.settings import DataKey
from goalgrid.grid.store.home import Home
from goalgrid.retrieval.encoders import pretrained
from goalgrid.retrieval.encoders.calls.tower_calls import tower_calls
from goalgrid.retrieval.features import CachedArrays, Unit
from goalgrid.retrieval.fit import check_fit
from goalgrid.retrieval.published.published_model import check_whole
from goalgrid.retrieval.words.splitting import spelled_shares
from goalgrid.runners.launch.driver import Spread
from goalgrid.runners.launch.jobs import Job, jobs_for
from goalgrid.runners.training.batch_sizes import check_batches
from goalgrid.runners.training.inputs import (
    caption_source,
    captions_of_epoch,
    check_known,
    content_of,
    image_source,
    opened,
    reader_of,
)
from goalgrid.runners.training.training_methods import classes
from goalgrid.runners.trial import evaluations
from goalgrid.runners.watching.view import View


def check_inputs(
    jobs: Sequence[Job],
    *,
    allow_leak: bool = True,
    chooses: bool = False,
    warn: Callable[[str, str], None] = lambda message, word: None,
) -> tuple[tuple[DataKey, str], ...]:
    """Open all data sets and find all weights, so that a wrong path is one UserError instead of 45 failed trials.

    Also check that files of training methods belong to these data, and that batches are large enough. Return the
    fingerprints of all data.

    Args:
        allow_leak: whether test images may occur in the training or validation split.
        chooses: whether validation selects settings; whether it selects checkpoints is known from the trials.
        warn: called with each problem that does not prevent training, and "warning" or "note"; the share of unknown
            words is a note.
    """
    fingerprints = dict[DataKey, str]()
    for job in jobs:
        for settings, protocols in zip(job.trials, job.protocols, strict=False):
            fingerprint = evaluations.check(settings, protocols, job.machine)
            fingerprints[DataKey.of(settings.dataset, settings.model)] = fingerprint
    jobs = [job for job in jobs if not job.protocols]
    training = [settings for job in jobs for settings in job.trials if not settings.ensemble]
    if any(settings.train.computes_again for settings in training):
        from goalgrid.runners.gpu.architectures import check_recomputation  # not with every torch

        check_recomputation(training)
    warn_once, check_whole_once = cache(warn), cache(check_whole)
    read = set[Any]()
    for machine, dataset, model, train, methods, columns in _configurations(jobs):
        root, data = machine.root(dataset.name), content_of(dataset, model.image, machine)
        fingerprints[DataKey.of(dataset, model, columns)] = data.fingerprint
        chosen = chooses or train.selection != "last"
        for note, word in check_fit(dataset, model, root, data, allow_leak=allow_leak, chooses=chosen).items():
            warn_once(note, word)
        pairs = opened(dataset, model.image, machine, data)
        for call in tower_calls(dataset, model, machine.places):
            for note in call.notes():
                warn_once(note, "note")
        for part in model.pretrained:
            place = pretrained.locate(part, machine.places)
            if part.of_file and place is not None:
                check_whole_once(place, model)
        if (by := (machine, dataset, model.text.tokenizer, model.text.preparation)) not in read:
            read.add(by)
            shares = check_known(reader_of(pairs, dataset, model.text, machine), pairs, dataset)
            if any(shares.values()):
                warn_once(f"{dataset.name}: {spelled_shares(shares)}", "note")
        for method in methods:
            method.check(dataset, root, pairs)
        check_batches(train, captions_of_epoch(dataset, train, pairs.train), machine.resources)
    return tuple(fingerprints.items())


def _configurations(jobs: Iterable[Job]) -> Iterable[tuple[Any, ...]]:
    """Return each combination of machine, data set, model, training, training methods and read columns once."""
    return dict.fromkeys(
        (
            job.machine.reading(settings.dataset.name, settings.objective.columns),
            settings.dataset,
            settings.model,
            settings.train,
            tuple(classes(settings)),
            settings.objective.columns,
        )
        for job in jobs
        for settings in job.trials
    )


def feature_jobs(grid: Grid, cells: Sequence[Cell], home: Home) -> list[Job]:
    """Return the jobs of a whole grid on this machine, for `check_inputs` and `compute_features`."""
    return jobs_for(grid, trials_of(cells), home, gpus=torch.cuda.device_count())


def feature_sources(jobs: Iterable[Job]) -> dict[Path, tuple[CachedArrays, Job]]:
    """Return the sources to precompute, keyed by cache folder, each with a job whose trial reads it."""
    first = dict[Any, Job]()
    for job in jobs:
        for settings, trial_id in zip(job.trials, job.ids, strict=True):
            alone = replace(job, trials=(settings,), ids=(trial_id,), protocols=(), tried=())
            first.setdefault((settings.dataset, settings.model, job.machine), alone)
    by_folder: dict[Path, tuple[CachedArrays, Job]] = {}
    for (dataset, model, machine), job in first.items():
        for source in (image_source(dataset, model.image, machine), caption_source(dataset, model, machine)):
            if source:
                by_folder.setdefault(source.folder, (source, job))
    return by_folder


def reader(content: str, folder: Path, cpus: int) -> Callable[[Unit], list[np.ndarray]]:
    """Build the function that computes feature units in `folder` on `cpus` CPUs; `content` is a trial as JSON."""
    job = Job.from_json(content)
    resources = job.machine.resources.model_copy(update={"cpu": cpus, "workers": cpus})
    machine = replace(job.machine, resources=resources)
    machine.begin()
    source, _ = feature_sources([replace(job, machine=machine)])[folder]
    return source.reader(machine.device)


def compute_features(
    jobs: Iterable[Job], view: View, spread: Callable[..., Spread | None] = lambda begin, *arguments: None
) -> None:
    """Compute features and smaller pictures missing in the cache, with a progress bar; raise UserError on failure.

    `spread`, like `Driver.spread`, runs `reader` on every GPU; by default this process computes everything.
    """
    for folder, (source, job) in feature_sources(jobs).items():
        if wanting := source.wanting():
            for path in wanting:
                if path.exists():
                    warn(f"the features {path} are damaged; they are moved aside and recomputed")
            tell(f"{source.title}: {source.views():,} {source.what}, cached in {folder}")
            with view.bar(source.title, source.views()) as advance:
                on_gpus = spread(reader, job.to_json(), folder)
                source.fill(job.machine.device, advance, on_gpus)
    if torch.cuda.is_initialized():
        torch.cuda.empty_cache()
