"""Jobs: what a driver schedules. A job is one or more trials, run in order in one process, and what they may use."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Protocol

from grid import catalog
from grid.catalog import Resources
from grid.errors import UserError
from grid.expansion import Trial
from grid.gridfile import Grid
from grid.home import Home
from grid.settings import TrialSettings
from runners.events import Report
from runners.machine import Machine
from runners.trial import run_trial


@dataclass(frozen=True)
class Job:
    """Plain values only: a job crosses process borders as JSON."""

    trials: tuple[TrialSettings, ...]
    ids: tuple[str, ...]
    home: str
    machine: Machine
    cpu: int
    gpu: float

    def run(self, report: Report) -> None:
        """Run the trials in this process, one after the other."""
        home = Home(Path(self.home))
        for trial_id, settings in zip(self.ids, self.trials, strict=True):
            if settings.starts_from in self.ids and not home.trial(settings.starts_from).done.exists():
                continue  # its parent failed, and says so; this one stays planned
            run_trial(settings, home.trial(trial_id), report, self.machine)

    def left(self) -> list[str]:
        """Ids of its trials that are not done."""
        home = Home(Path(self.home))
        return [trial_id for trial_id in self.ids if not home.trial(trial_id).done.exists()]

    def to_json(self) -> str:
        content = {
            "trials": [settings.model_dump(mode="json") for settings in self.trials],
            "ids": self.ids,
            "home": self.home,
            "machine": asdict(self.machine),
            "cpu": self.cpu,
            "gpu": self.gpu,
        }
        return json.dumps(content)

    @classmethod
    def from_json(cls, text: str) -> "Job":
        content = json.loads(text)
        pairs = {key: tuple(map(tuple, content["machine"][key])) for key in ("roots", "weights")}
        machine = content["machine"] | pairs
        trials = tuple(TrialSettings.model_validate(settings) for settings in content["trials"])
        return cls(trials, tuple(content["ids"]), content["home"], Machine(**machine), content["cpu"], content["gpu"])


class Driver(Protocol):
    """Runs jobs somewhere and passes on what their trials report; returns when none is left or it was interrupted."""

    def run(self, jobs: Sequence[Job], report: Report) -> None: ...


def jobs_for(grid: Grid, trials: Sequence[Trial], home: Home, *, gpus: int) -> list[Job]:
    """One job a chain of trials that start from one another, each with its share of the machine.

    Args:
        gpus: how many GPUs there are; with none, jobs ask for CPUs only.

    Raises:
        UserError: a GPU share that cannot be scheduled.
    """
    roots = tuple((name, str(grid.root(name))) for name in grid.datasets if grid.root(name))
    resources = grid.resources
    weights = tuple((name, str(folder.absolute())) for name, folder in grid.places().items())
    cache = str(Path(resources.features or home.features).expanduser().absolute())
    jobs = []
    for chain in chains(trials):
        share = max(gpu_share(resources, trial.settings.recipe) for trial in chain) if gpus else 0.0
        machine = Machine(resources.cpu, resources.workers, share > 0, roots, weights, cache)
        settings, ids = tuple(trial.settings for trial in chain), tuple(trial.id for trial in chain)
        jobs.append(Job(settings, ids, str(home.path.absolute()), machine, resources.cpu, share))
    return jobs


def chains(trials: Sequence[Trial]) -> list[list[Trial]]:
    """Trials that start from one another, together and in order; a parent that is not among these is done."""
    found: dict[str, list[Trial]] = {}
    for trial in trials:
        members = found.get(trial.parent) if trial.parent else None
        if members is None:
            members = []
        members.append(trial)
        found[trial.id] = members
    return list({id(members): members for members in found.values()}.values())


def gpu_share(resources: Resources, recipe: str) -> float:
    """The grid file's share of a GPU, else the recipe's.

    Raises:
        UserError: it is neither below 1 nor whole; Ray cannot place 1.5 GPUs.
    """
    share = catalog.recipe(recipe).gpu if resources.gpu is None else resources.gpu
    if share > 1 and share != int(share):
        raise UserError(f"resources.gpu = {share}: give a share of one GPU, up to 1, or a whole number of GPUs.")
    return share


def concurrency(resources: Resources, jobs: Sequence[Job], *, cpus: int, gpus: int) -> int:
    """How many jobs run at a time: what is asked for, bounded by what the machine holds.

    Raises:
        UserError: not even one job fits.
    """
    cpu, gpu = max(job.cpu for job in jobs), max(job.gpu for job in jobs)
    fitting = min(cpus // cpu, int(gpus / gpu) if gpu else cpus)
    if fitting < 1:
        raise UserError(f"a job asks for {cpu} CPUs and {gpu:g} GPUs; this machine has {cpus} and {gpus}.")
    return min(fitting, resources.concurrency or fitting)
