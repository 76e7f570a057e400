"""Jobs: what a driver schedules. A job is one or more trials, run in order in one process, and what they may use."""

import json
import os
from collections.abc import Callable, Collection, Container, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol

import torch

from grid import catalog
from grid.attempts import Attempt
from grid.errors import UserError
from grid.expansion import Trial, chains
from grid.failures import Failure
from grid.gridfile import Grid
from grid.home import Home, State
from grid.running import Resources
from grid.settings import TrialSettings
from runners import attempts, folders, gpu
from runners.attempts import Origin
from runners.events import Event, Report
from runners.failures import alone, given_up, pause
from runners.machine import Machine
from runners.progress import Cadence
from runners.stopping import Stop
from runners.trial import run_trial


@dataclass(frozen=True)
class Launched:
    """What all jobs of one launch have in common.

    Args:
        name: of the launch; unique.
        mark: of the runs folder, by which a node knows that it sees the right one.
        patience: seconds to wait for that.
    """

    name: str
    mark: str
    patience: float = 60.0
    cadence: Cadence = field(default_factory=Cadence)


@dataclass(frozen=True)
class Request:
    """What a job asks of the machine.

    Args:
        memory: the part of a GPU's memory that it may allocate.
    """

    cpu: int
    gpu: float
    custom: tuple[tuple[str, float], ...] = ()
    memory: float = 1.0

    @property
    def resources(self) -> dict[str, float]:
        """By the names that Ray gives them."""
        return {"CPU": float(self.cpu), **({"GPU": self.gpu} if self.gpu else {}), **dict(self.custom)}


@dataclass(frozen=True)
class Job:
    """Plain values only: a job crosses process borders as JSON."""

    trials: tuple[TrialSettings, ...]
    ids: tuple[str, ...]
    home: str
    machine: Machine
    request: Request
    launched: Launched

    @property
    def place(self) -> Home:
        return Home(Path(self.home))

    @property
    def stop_request(self) -> Path:
        return self.place.stop_request(self.launched.name)

    def run(self, report: Report, stop: Stop, *, node: str = "", worker: str = "", capture: bool = False) -> None:
        """Run the trials in this process, one after the other, until all had their attempt or it is asked to end.

        Args:
            node, worker, capture: of the attempts' `Origin`.
        """
        home, origin = self.place, Origin(self.launched.name, node, worker, capture)
        try:
            folders.wait_for(home, self.launched.mark, self.launched.patience)
        except UserError as error:
            for trial_id in self.ids:
                report(Event(trial_id, "failed", message=f"{Failure.STORAGE}: {error}"))
            return
        self._bound()
        for trial_id, settings in zip(self.ids, self.trials, strict=True):
            stop.look()
            if stop.asked():
                return
            if settings.starts_from in self.ids and not home.trial(settings.starts_from).done.exists():
                continue  # its parent failed, and says so; this one stays planned
            folder, cadence = home.trial(trial_id), self.launched.cadence
            run_trial(settings, folder, report, self.machine, origin=origin, cadence=cadence, stop=stop)
            self.machine.release()

    def _bound(self) -> None:
        """Keep to its share of a GPU's memory; a worker's jobs may have different ones."""
        if self.machine.device.type == "cuda":
            gpu.bound(1.0 if self.alone() else self.request.memory)

    def left(self) -> "Job | None":
        """What another try may help: the trials that are neither done, nor failed for good, nor somebody else's."""
        home, kept = self.place, list[tuple[str, TrialSettings]]()
        for trial_id, settings in zip(self.ids, self.trials, strict=True):
            state = home.trial(trial_id).state()
            waits = settings.starts_from in self.ids and settings.starts_from not in dict(kept)
            orphan = waits and not home.trial(str(settings.starts_from)).done.exists()
            if state in (State.PLANNED, State.INTERRUPTED) and not orphan:
                kept.append((trial_id, settings))
        if not kept:
            return None
        return replace(self, ids=tuple(name for name, _ in kept), trials=tuple(settings for _, settings in kept))

    def attempts(self) -> list[list[Attempt]]:
        """All that there were at each of its trials."""
        return [self.place.trial(trial_id).attempts() for trial_id in self.ids]

    def live(self) -> bool:
        """Whether one of its trials is being trained."""
        return any(self.place.trial(trial_id).state() is State.RUNNING for trial_id in self.ids)

    def alone(self) -> bool:
        """Whether its next try has the device for itself."""
        return any(alone(self.place.trial(trial_id), self.launched.name) for trial_id in self.ids)

    def pause(self) -> float:
        """Seconds to wait before its next try."""
        return max(pause(self.place.trial(trial_id), self.launched.name) for trial_id in self.ids)

    def bury(
        self, worker: str, judge: Callable[[Attempt], tuple[Failure, str]], buried: Container[Attempt]
    ) -> tuple[Attempt, Event] | None:
        """After a worker died: say how the attempt that this cut off ended, by the driver's judgement.

        Args:
            buried: attempts that earlier deaths cut off.
        """
        for trial_id in self.ids:
            folder = self.place.trial(trial_id)
            latest = folder.latest()
            if not latest or latest in buried or not latest.made_by(self.launched.name, worker):
                continue
            if folder.done.exists() or latest.outcome() not in (None, Failure.TIMEOUT):
                continue  # it ended by itself; only the watchdog says before a death how that ended
            attempts.end(latest, *judge(latest))
            over = given_up(folder, self.launched.name)
            said = f"{latest.outcome()}: {latest.message()}"
            return latest, Event(trial_id, "failed" if over else "retry", message=said)
        return None

    def to_json(self) -> str:
        content = asdict(replace(self, trials=()))
        return json.dumps(content | {"trials": [settings.model_dump(mode="json") for settings in self.trials]})

    @classmethod
    def from_json(cls, text: str) -> "Job":
        content = json.loads(text)
        pairs = {key: tuple(map(tuple, content["machine"][key])) for key in ("roots", "weights")}
        request = content["request"] | {"custom": tuple(map(tuple, content["request"]["custom"]))}
        launched = content["launched"] | {"cadence": Cadence(**content["launched"]["cadence"])}
        return cls(
            tuple(TrialSettings.model_validate(settings) for settings in content["trials"]),
            tuple(content["ids"]),
            content["home"],
            Machine(**content["machine"] | pairs),
            Request(**request),
            Launched(**launched),
        )


@dataclass(frozen=True)
class Capacity:
    """What there is to run on: the resources of each node, by the names that Ray gives them."""

    nodes: tuple[Mapping[str, float], ...]

    @classmethod
    def of_this_machine(cls) -> "Capacity":
        return cls(({"CPU": os.cpu_count() or 1, "GPU": torch.cuda.device_count()},))

    @property
    def gpus(self) -> int:
        return int(sum(node.get("GPU", 0) for node in self.nodes))

    def slots(self, request: Request) -> int:
        """How many such jobs there is room for; each has to fit on one node."""
        wanted = request.resources.items()
        return sum(min(int(node.get(name, 0) / amount + 1e-9) for name, amount in wanted) for node in self.nodes)

    def largest(self, request: Request) -> Mapping[str, float]:
        """The node that comes nearest to what a job asks for."""

        def near(node: Mapping[str, float]) -> tuple[float, ...]:
            enough = sum(node.get(name, 0) >= amount for name, amount in request.resources.items())
            return enough, node.get("GPU", 0), node.get("CPU", 0)

        return max(self.nodes, key=near)


class Driver(Protocol):
    """Runs jobs somewhere and passes on what their trials report."""

    def capacity(self) -> Capacity: ...

    def check(self, home: Home, mark: str, paths: Sequence[Path], patience: float) -> None:
        """Have every node look whether it sees the runs folder and these paths, and runs the same code."""

    def __enter__(self) -> "Driver": ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    def run(self, jobs: Sequence[Job], report: Report, *, slots: int) -> None:
        """Run these, so many at a time; returns when none is left or they were asked to end."""

    def on_gpus(self, custom: Collection[str], function: Callable[..., Any], *arguments: Any) -> list[Any]:
        """What a function returns in a process of its own on each node that has a GPU, and these resources."""

    def kill(self, attempt: Attempt) -> None:
        """End the process that makes this attempt."""


def jobs_for(
    grid: Grid,
    trials: Sequence[Trial],
    home: Home,
    *,
    gpus: int,
    launched: Launched = Launched("alone", ""),
) -> list[Job]:
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
        machine = Machine(resources.cpu, resources.workers, share > 0, roots, weights, cache, resources.replicas)
        settings, ids = tuple(trial.settings for trial in chain), tuple(trial.id for trial in chain)
        request = Request(resources.cpus, share, tuple(resources.custom.items()), min(share, 1.0) or 1.0)
        jobs.append(Job(settings, ids, str(home.path.absolute()), machine, request, launched))
    return jobs


def gpu_share(resources: Resources, recipe: str) -> float:
    """GPUs of a job: the grid file's share, else the recipe's; one for each replica.

    Raises:
        UserError: it is neither below 1 nor whole; Ray cannot place 1.5 GPUs.
    """
    share = resources.gpus(catalog.recipe(recipe).gpu)
    if share > 1 and share != int(share):
        raise UserError(f"resources.gpu = {share}: give a share of one GPU, up to 1, or a whole number of GPUs.")
    return share


def concurrency(resources: Resources, jobs: Sequence[Job], capacity: Capacity, *, custom: bool = True) -> int:
    """How many jobs run at a time: what is asked for, bounded by what the machine or cluster holds.

    Args:
        custom: whether resources by which a cluster's nodes are told apart count.

    Raises:
        UserError: a job fits on no node.
    """
    requests = {job.request if custom else replace(job.request, custom=()) for job in jobs}
    for request in requests:
        if not capacity.slots(request):
            wanted, largest = request.resources, capacity.largest(request)
            raise UserError(
                f"a job asks for {_listed(wanted)}; the largest node has "
                f"{_listed({name: largest.get(name, 0) for name in wanted})}. "
                "Ask for less in [resources], or add a node that has it."
            )
    fitting = min(map(capacity.slots, requests))
    return min(fitting, resources.concurrency or fitting)


def _listed(resources: Mapping[str, float]) -> str:
    """Amounts in words.

    >>> _listed({"CPU": 2.0, "GPU": 0.5})
    '2 CPU and 0.5 GPU'
    """
    return " and ".join(f"{amount:g} {name}" for name, amount in resources.items())
