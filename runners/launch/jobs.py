"""Jobs, the units that a driver schedules: a trial or a chain of trials, with the resources it requests."""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, repeat, zip_longest

from pydantic import TypeAdapter

from goalgrid.grid.catalog import Catalog
from goalgrid.grid.errors import machine_path
from goalgrid.grid.evaluations import Evaluate, moved
from goalgrid.grid.expansion import Trial, chains
from goalgrid.grid.gridfile import Grid
from goalgrid.grid.groups import grouped
from goalgrid.grid.plugins import uses_of
from goalgrid.grid.select import Halving
from goalgrid.grid.settings import DataKey, TrialSettings
from goalgrid.grid.store.gpu_needs import Need, jobs_at_once
from goalgrid.grid.store.home import Home, State
from goalgrid.grid.store.speed_probes import speed_of
from goalgrid.runners.gpu.memory_probe import Needs, Samples
from goalgrid.runners.training.machine import Machine
from goalgrid.runners.training.progress import Cadence


@dataclass(frozen=True)
class Launched:
    """Properties shared by all jobs of a launch.

    Args:
        name: unique name of the launch.
        mark: mark of the runs folder, by which nodes recognise it.
        patience: seconds to wait until a node sees the folder.
        code: code fingerprint of the driver.
        data: fingerprint of each data set at the start of the launch.
        launch_id: id of the kept launch (`grid.store.kept_launch`); empty if it is not kept.
    """

    name: str
    mark: str
    patience: float = 60.0
    cadence: Cadence = field(default_factory=Cadence)
    code: str = ""
    data: tuple[tuple[DataKey, str], ...] = ()
    launch_id: str = ""


@dataclass(frozen=True)
class Request:
    """The resources that a job requests."""

    cpu: int
    gpu: float
    custom: tuple[tuple[str, float], ...] = ()
    memory: float = 1.0
    """Fraction of a GPU's memory that the job may allocate."""

    @property
    def resources(self) -> dict[str, float]:
        """Return the resources by Ray's names."""
        return {"CPU": float(self.cpu), **({"GPU": self.gpu} if self.gpu else {}), **dict(self.custom)}


@dataclass(frozen=True)
class Job:
    """A trial or a chain of trials. Has plain values only, since jobs are sent to other processes as JSON.

    Args:
        trials, ids: settings and ids of the chain's trials, parents first.
        tried: number of attempts at each trial before this round of the launch.
        halvings: early-stopping rules by trial id.
        protocols: only for jobs that evaluate a finished trial on more data: the protocols for each of `trials`.
        dropping: those of `ids` whose weights are deleted once the trial is done or evaluated.
        place: position of its grid in the launch; jobs of earlier grids start first.
    """

    trials: tuple[TrialSettings, ...]
    ids: tuple[str, ...]
    home: Home
    machine: Machine
    request: Request
    launched: Launched
    tried: tuple[int, ...] = ()
    halvings: Mapping[str, Halving] = field(default_factory=dict)
    protocols: tuple[tuple[str, ...], ...] = ()
    dropping: frozenset[str] = frozenset()
    place: int = 0

    @property
    def id(self) -> str:
        """Return the id of the job, which is that of its first trial."""
        return self.ids[0]

    def is_stopped(self, trial_id: str) -> bool:
        """Return whether an early-stopping rule of this launch has stopped the trial."""
        return trial_id in self.halvings and self.home.trial(trial_id).state() is State.STOPPED

    def only(self, ids: Sequence[str]) -> "Job":
        """Return the job with only these trials, and with updated numbers of attempts."""
        trials = tuple(settings for name, settings in zip(self.ids, self.trials, strict=True) if name in ids)
        remaining = tuple(name for name in self.ids if name in ids)
        tried = tuple(len(self.home.trial(name).attempts()) for name in remaining)
        return replace(self, trials=trials, ids=remaining, tried=tried)

    def to_json(self) -> str:
        return _JSON.dump_json(self).decode()

    @classmethod
    def from_json(cls, text: str) -> "Job":
        """Register the plugins of a job's grid, then read the job; raise UserError if a plugin cannot be imported."""
        known = Catalog.of(uses_of(json.loads(text)["machine"]["uses"]))
        return _JSON.validate_json(text, context=known.context)


_JSON = TypeAdapter(Job)


def jobs_for(
    grid: Grid, trials: Sequence[Trial], home: Home, *, gpus: int, launched: Launched = Launched("alone", "")
) -> list[Job]:
    """Build one job per chain of trials; jobs run on CPUs if `gpus` is 0."""
    resources = grid.resources
    jobs = []
    for of_chain in chains(trials):
        share = max(resources.gpus(grid.catalog.recipe(trial.shared.recipe).gpu) for trial in of_chain) if gpus else 0.0
        machine = machine_for(grid, home, gpu=share > 0)
        settings, ids = tuple(trial.settings for trial in of_chain), tuple(trial.id for trial in of_chain)
        request = Request(resources.cpus, share, tuple(resources.custom.items()), min(share, 1.0) or 1.0)
        jobs.append(Job(settings, ids, Home(home.path.absolute()), machine, request, launched))
    return jobs


def evaluating(job: Job, evaluate: Evaluate) -> list[Job]:
    """Build a job for each trial to evaluate by [evaluate], with its settings for each evaluation data set."""
    jobs = []
    for trial_id, settings in zip(job.ids, job.trials, strict=True):
        if by_dataset := evaluate.of(settings):
            on, protocols = tuple(moved(settings, name) for name in by_dataset), map(tuple, by_dataset.values())
            jobs.append(replace(job, trials=on, ids=(trial_id,) * len(on), protocols=tuple(protocols)))
    return jobs


def in_turn(jobs: Sequence[Job]) -> list[Job]:
    """Order jobs by grid, alternating between different requests; jobs with equal requests keep their order."""
    queue = list[Job]()
    for _, of_grid in sorted(grouped((job.place, job) for job in jobs).items()):
        groups = grouped((job.request, job) for job in of_grid).values()
        queue += [job for turn in zip_longest(*groups) for job in turn if job is not None]
    return queue


def machine_for(grid: Grid, home: Home, *, gpu: bool) -> Machine:
    """Return the machine for the grid's trials: resources, and folders of data and weights."""
    resources, datasets = grid.resources, dict.fromkeys([*grid.datasets, *grid.evaluate.datasets])
    roots = tuple((name, str(grid.root(name))) for name in datasets if grid.root(name))
    weights = tuple((name, str(folder.absolute())) for name, folder in grid.places().items())
    uses = tuple((use.path, use.source) for use in grid.uses)
    places = machine_path(str(resources.features or home.features)).absolute(), home.data.absolute()
    columns = tuple((name, named) for name in datasets if (named := grid.columns(name)))
    return Machine(resources, gpu, roots, weights, tuple(grid.checkpoints.items()), *places, uses, columns)


def samples(jobs: Sequence[Job]) -> Samples:
    """Choose a trial of each kind whose GPU memory must be measured; empty if the grid sets the share."""
    by_kind = grouped((speed_of(settings), settings) for job in jobs for settings in _sharing(job))
    return {kind: alike[0] for kind, alike in by_kind.items()}


def _sharing(job: Job) -> list[TrialSettings]:
    """Return the trials whose GPU share is measured; ensembles only evaluate models that were trained this way."""
    shares = job.machine.gpu and job.machine.resources.shares_gpus and not job.protocols
    return [settings for settings in job.trials if shares and settings.train.epochs and not settings.ensemble]


def requests_for(jobs: Sequence[Job], gpus: Sequence[int], *, at_once: int) -> list[Request]:
    """Return requests that spread jobs evenly over GPUs; Ray by itself would fill one GPU before using the next.

    With n concurrent jobs on a node, i.e. q per GPU with remainder r, r * (q + 1) jobs request 1 / (q + 1) of a GPU and
    the others 1 / q, each at least its need. The number of concurrent jobs divides all jobs evenly into rounds. Shares
    set by the grid are kept, and so is the memory that a job may allocate.

    Args:
        gpus: number of GPUs that the jobs may use on each node.
        at_once: maximum number of concurrent jobs.
    """
    free = sorted((at for at, job in enumerate(jobs) if _spreads(job)), key=lambda at: -jobs[at].request.gpu)
    requests = [job.request for job in jobs]
    if not free or not sum(gpus):
        return requests
    room = min(at_once, sum(jobs_at_once(requests[free[0]].gpu, of_node) for of_node in gpus))
    turns = math.ceil(len(free) / room)
    shares = _shares(math.ceil(len(free) / turns), gpus)
    for at, share in zip(free, chain(shares, repeat(shares[-1])), strict=False):
        requests[at] = replace(requests[at], gpu=max(share, requests[at].gpu))
    return requests


def _shares(jobs: int, gpus: Sequence[int]) -> list[float]:
    """Return the shares that this many jobs request, largest first, so that all fit on the nodes' GPUs.

    Ray assigns a request to the node with most free resources, so equal nodes get one each before any gets a second. If
    equal nodes get different numbers of jobs, the extra jobs have the smallest shares, so that every GPU has work.

    >>> _shares(9, [1, 1, 1, 1]), _shares(9, [2, 2, 2, 2])[::4]
    ([0.3333, 0.3333, 0.3333, 0.3333, 0.3333, 0.3333, 0.3333, 0.3333, 0.3333], [1.0, 0.5, 0.5])
    """
    alike = len(gpus) if len(set(gpus)) == 1 else 1
    on_each, gpus_of_each = math.ceil(jobs / alike), sum(gpus) // alike
    least, over = divmod(max(on_each, gpus_of_each), gpus_of_each)
    sharing = [least] * (least * (gpus_of_each - over)) + [least + 1] * ((least + 1) * over)
    # Ray counts resources in units of 1/10000
    return [math.floor(1e4 / number) / 1e4 for number in sharing for _ in range(alike)][:jobs]


def _spreads(job: Job) -> bool:
    """Return whether the job's GPU share is a measured minimum, rather than set by the grid."""
    return job.machine.resources.shares_gpus and 0 < job.request.gpu < 1


def with_share(job: Job, needs: Needs) -> Job:
    """Return the job with the GPU share that its largest trial needs; unchanged if a need is unknown."""
    kinds = {speed_of(settings) for settings in _sharing(job)}
    if not kinds or not needs.keys() >= kinds:
        return job
    largest = max((needs[kind] for kind in kinds), key=Need.share)
    return replace(job, request=replace(job.request, gpu=largest.share(), memory=largest.bound(largest.share())))
