"""What is done once before any trial starts: open every data set, find all weights, run every frozen backbone."""

from collections.abc import Iterable, Sequence
from functools import partial

import torch
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from grid.encoders import BackboneSettings
from grid.expansion import Cell, trials_of
from grid.gridfile import Grid
from grid.home import Home
from retrieval import data, pretrained
from retrieval.features import Source
from retrieval.model import pretrained_parts
from runners.jobs import Job, jobs_for
from runners.trial import feature_source


def check_inputs(jobs: Sequence[Job]) -> None:
    """Open every data set and find every network's weights, so that a wrong path is one message, not 45.

    Raises:
        UserError: what is wrong with the first that is.
    """
    for job in jobs:
        for settings in job.trials:
            name, image = settings.dataset.name, settings.model.image
            keep = not (isinstance(image, BackboneSettings) and image.cached)
            view, root = data.view_of(image), job.machine.root(name)
            pairs = data.load(name, root, view, workers=job.machine.workers, keep=keep)
            data.check_protocol(pairs, name, settings.dataset.protocol)
            for part in pretrained_parts(settings.model):
                pretrained.locate(part, job.machine.places)


def feature_jobs(grid: Grid, cells: Sequence[Cell], home: Home) -> list[Job]:
    """The jobs of a whole grid on this machine, for what they read."""
    return jobs_for(grid, trials_of(cells), home, gpus=torch.cuda.device_count())


def sources(jobs: Iterable[Job]) -> list[tuple[Source, Job]]:
    """Everything that a frozen backbone has to see, once each, with a job that needs it."""
    found: dict[str, tuple[Source, Job]] = {}
    for job in jobs:
        for settings in job.trials:
            if isinstance(settings.model.image, BackboneSettings) and settings.model.image.cached:
                source = feature_source(settings.dataset, settings.model.image, job.machine)
                found.setdefault(str(source.folder(job.machine.features)), (source, job))
    return list(found.values())


def compute_features(jobs: Iterable[Job], console: Console) -> None:
    """Run every frozen backbone over its images, with a bar, unless its features stand in the cache.

    Raises:
        UserError: an image or the weights cannot be read, or the disk is full.
    """
    for source, job in sources(jobs):
        if not source.ready(job.machine.features):
            with _bar(console) as bar:
                bar.add_task(f"features of {source.name} by {source.backbone.weights}", total=source.views())
                source.load(job.machine.features, job.machine.device, partial(bar.advance, TaskID(0)))
            where = f"features: {source.folder(job.machine.features)}"
            console.print(where, markup=False, highlight=False, soft_wrap=True)
    if torch.cuda.is_initialized():
        torch.cuda.empty_cache()


def _bar(console: Console) -> Progress:
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    return Progress(*columns, console=console, transient=True)
