"""Estimate the remaining cost of a grid: CPU or GPU hours, wall time and disk, each as a range with its source.

Figures come from finished trials of the same data set and recipe, from others whose steps cost the same, or from a
probe; never from a guess.
"""

import json
import os
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import ValidationError

from goalgrid.grid.catalog import Catalog
from goalgrid.grid.errors import counted
from goalgrid.grid.expansion import Trial, chains, dropping
from goalgrid.grid.groups import grouped
from goalgrid.grid.resources import Resources, cpus_here
from goalgrid.grid.settings import TrialSettings
from goalgrid.grid.store import attempts, files, gpu_needs, speed_probes
from goalgrid.grid.store.gpu_needs import Need
from goalgrid.grid.store.home import State, TrialFolder
from goalgrid.state.grid_state import GridState

RUNNING = 7
"""Disk space of a running trial in multiples of its best checkpoint: checkpoints of weights and Adam's moments."""

EXAMINED = 200
"""Maximum number of finished trials with other settings that are examined for their cost."""

SHORT = 600
"""Seconds of work below which starting Ray and its processes matters (benchmarks/RESULTS.md)."""

CLOCK = (("days", 86400.0), ("hours", 3600.0), ("minutes", 60.0), ("seconds", 1.0))
BYTES = (("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3))


class Span(NamedTuple):
    """A range from a least to a greatest value."""

    least: float
    most: float

    @classmethod
    def of(cls, values: Iterable[float]) -> "Span":
        known = list(values)
        return cls(min(known, default=0.0), max(known, default=0.0))

    def __add__(self, other: "Span") -> "Span":  # type: ignore[override]
        return Span(self.least + other.least, self.most + other.most)

    def __mul__(self, factor: float) -> "Span":  # type: ignore[override]
        return Span(self.least * factor, self.most * factor)

    def at_least(self, value: float) -> "Span":
        return Span(max(value, self.least), max(value, self.most))

    def text(self, unit: str, factor: float = 1.0) -> str:
        """Format the span as `1.2 to 1.4 GB`, with two significant digits below 10, otherwise as integers.

        If both ends read the same, only one is shown.
        """
        ends = (value / factor for value in self)
        least, most = (f"{value:,.0f}" if value >= 10 else f"{value:.2g}" for value in ends)
        return f"{least} {unit}" if least == most else f"{least} to {most} {unit}"

    def scaled(self, units: Sequence[tuple[str, float]]) -> str:
        """Format the span in the largest unit not above its upper end; `units`: names and sizes, largest first."""
        return self.text(*next((unit for unit in units if self.most >= unit[1]), units[-1]))


class Key(NamedTuple):
    """A data set and a recipe: trials with equal keys cost the same."""

    dataset: str
    recipe: str

    @classmethod
    def of(cls, trial: Trial) -> "Key":
        return cls(trial.shared.dataset.name, trial.shared.recipe)

    def __str__(self) -> str:
        return f"{self.recipe} on {self.dataset}"


@dataclass(frozen=True)
class Basis:
    """The cost of trials of a recipe on a data set."""

    step: Span
    """Seconds per step, including its share of validation."""
    epoch_steps: int
    best: Span
    """Bytes of the best checkpoint."""
    rest: Span
    """Bytes of the other files of a finished trial."""
    gpu: bool
    source: str
    device: str = ""


@dataclass(frozen=True)
class GridCost:
    """The cost of the trials that a run would train."""

    hours: dict[str, Span]
    """Hours by device, "CPU" or "GPU"."""
    wall_seconds: Span
    disk_bytes: Span
    """Bytes that remain on the disk afterwards."""
    disk_bytes_while_running: Span
    """Additional bytes while trials are running."""
    jobs: int
    jobs_from: str
    rests_on: dict[str, str]
    """The source of the estimate for each recipe on a data set."""
    unknown: tuple[str, ...]

    def lines(self) -> list[str]:
        hours = " and ".join(
            span.scaled([(f"{device} {unit}", seconds / 3600) for unit, seconds in CLOCK[1:]])
            for device, span in self.hours.items()
        )
        start = ", and 10 to 20 seconds to start" if self.wall_seconds.least < SHORT else ""
        wall, further = self.wall_seconds.scaled(CLOCK), self.disk_bytes_while_running.scaled(BYTES)
        figures = [
            f"{hours}; {wall} wall-clock with {self.jobs} at a time ({self.jobs_from}){start}",
            f"{self.disk_bytes.scaled(BYTES)} of disk, and {further} more while it runs",
        ]
        known = [f"{key}: from {source}" for key, source in self.rests_on.items()]
        unknown = [f"{key}: cost unknown, so not counted" for key in self.unknown]
        ask = ["to measure unknown costs, add --probe to the same command"] if self.unknown else []
        return [*(figures if self.rests_on else ()), *known, *unknown, *ask]


def cost_of(
    grid_state: GridState, trials: Sequence[Trial], replaced: Iterable[str] = (), *, jobs: int | None
) -> GridCost:
    """Estimate the cost of training these trials with `jobs` concurrent jobs.

    `replaced`: ids of trials that are retrained from scratch. `jobs`: default: the grid's setting, or as many as fit.
    """
    keys = dict.fromkeys(Key.of(trial) for trial in trials if trial.epochs)  # an ensemble costs an evaluation
    bases = {key: basis for key in keys if (basis := basis_of(grid_state, key))}
    anew = set(replaced)
    known = [(trial, bases[key]) for trial in trials if (key := Key.of(trial)) in bases]
    seconds = {
        trial.id: basis.step * steps_left(grid_state, trial, basis.epoch_steps, trial.id in anew)
        for trial, basis in known
    }
    shares = shares_of(grid_state, [trial for trial, basis in known if basis.gpu])
    asked, why = _jobs(grid_state.grid.resources, shares, jobs)
    chained = chains(trials) if seconds else []
    in_order = [span for chain in chained if (span := [trial for trial in chain if trial.id in seconds])]
    together = max(1, min(asked, len(in_order)))
    without = dropping(grid_state.grid, grid_state.points)
    return GridCost(
        _hours(in_order, seconds, shares, grid_state.grid.resources.cpus),
        wall([total(seconds[trial.id] for trial in chain) for chain in in_order], together),
        total(basis.rest + basis.best * (trial.id not in without) for trial, basis in known),
        Span.of(end for basis in bases.values() for end in basis.best) * (RUNNING * together),
        together,
        why if together == asked else "as many as there are",
        {str(key): basis.source for key, basis in bases.items()},
        tuple(str(key) for key in keys if key not in bases),
    )


def unmeasured(grid_state: GridState, trials: Iterable[Trial]) -> list[Trial]:
    """Return one trial for each data set and recipe whose cost no finished trial tells."""
    first = {Key.of(trial): trial for trial in reversed(list(trials)) if trial.epochs}
    return [trial for key, trial in first.items() if not _from_records(grid_state, key)]


def basis_of(grid_state: GridState, key: Key) -> Basis | None:
    """Return the measured cost of this data set and recipe, from finished trials or a probe; None if not measured."""
    return _from_records(grid_state, key) or _from_probe(grid_state, key)


def _from_records(grid_state: GridState, key: Key) -> Basis | None:
    rows = [row for row in grid_state.records.values() if (row["dataset"], row["recipe"]) == key]
    source = counted(len(rows), "finished trial")
    if not rows:
        rows = _of_equal_cost(grid_state, key)
        source = f"{counted(len(rows), 'finished trial')} whose steps cost the same"
    if not rows:
        return None
    folders = [grid_state.home.trial(row["trial_id"]) for row in rows]
    best = [folder.best_checkpoint.stat().st_size if folder.best_checkpoint.exists() else 0 for folder in folders]
    environments = [json.loads(row["environment"]) for row in rows]
    return Basis(
        Span.of(row["train_seconds"] / row["steps"] for row in rows),
        max(row["steps"] // row["epochs"] for row in rows),
        Span.of(  # as it was before its weights went, in float32
            max(size, 4 * (row["parameters"] or 0)) for row, size in zip(rows, best, strict=True)
        ),
        Span.of(files.bytes_below(folder.path) - size for folder, size in zip(folders, best, strict=True)),
        any(environment.get("device_type") == "cuda" for environment in environments),
        source,
        environments[-1].get("device", ""),
    )


def _of_equal_cost(grid_state: GridState, key: Key) -> list[dict[str, Any]]:
    """Return the records of finished trials outside the grid (e.g. other learning rates) with equal step costs."""
    begins = f"{key.dataset}_{key.recipe}_"
    if not (others := sorted(name for name in grid_state.elsewhere if name.startswith(begins))):
        return []
    known = grid_state.grid.catalog
    kinds = {speed_probes.speed_of(t.settings) for t in alike(t for t in grid_state.trials if Key.of(t) == key)}
    done = (folder for name in others if (folder := grid_state.home.trial(name)).is_done())
    return grid_state.records_of(folder.trial_id for folder in islice(done, EXAMINED) if _kind(folder, known) in kinds)


def _kind(folder: TrialFolder, known: Catalog) -> str:
    """Return `speed_of` the settings of a finished trial; empty if these cannot be read."""
    try:
        return speed_probes.speed_of(known.validated(TrialSettings, files.read_json(folder.settings)))
    except ValidationError:
        return ""


def _from_probe(grid_state: GridState, key: Key) -> Basis | None:
    """Return the cost from the last probe of this data set and recipe, if it measured settings used in the grid."""
    probes = speed_probes.read(grid_state.home.grid(grid_state.grid.plain_name))
    probe = next((probe for probe in probes if (probe.dataset, probe.recipe) == key), None)
    trials = alike(trial for trial in grid_state.trials if Key.of(trial) == key)
    if probe is None or all(speed_probes.speed_of(trial.settings) != probe.settings for trial in trials):
        return None
    validation = probe.evaluation / probe.epoch_steps
    step = Span(probe.least + validation, probe.most + validation)
    best, rest = Span(probe.best, probe.best), Span(probe.rest, probe.rest)
    return Basis(step, probe.epoch_steps, best, rest, probe.gpu, f"a probe of {counted(probe.steps, 'step')}")


def steps_left(grid_state: GridState, trial: Trial, known: int, anew: bool) -> int:
    """Return the steps that a trial still has to make; `known`: steps per epoch if the size of the data is unknown."""
    steps = grid_state.data.epoch_steps(trial.shared) or known
    unbegun = anew or grid_state.states.get(trial.id, State.PLANNED) in (State.PLANNED, State.UNREADABLE)
    behind = 0 if unbegun else reached(grid_state.folder(trial))[1]
    return max(0, steps * trial.shared.train.epochs - behind)


def wall(chains: Sequence[Span], together: int) -> Span:
    """Return the wall time in seconds of all chains with `together` running at once (>= longest chain)."""
    return Span(*map(max, zip(total(chains) * (1 / together), *chains, strict=True)))


def _hours(
    jobs: Iterable[Sequence[Trial]], seconds: dict[str, Span], shares: dict[Key, float], cpus: int
) -> dict[str, Span]:
    """Return the hours by device: half a GPU for an hour is half a GPU-hour; trials without GPU share use CPUs."""
    hours: dict[str, Span] = {}
    for chain in jobs:
        on_gpu = [shares[Key.of(trial)] for trial in chain if Key.of(trial) in shares]
        device, share = ("GPU", max(on_gpu)) if on_gpu else ("CPU", cpus)
        spent = total(seconds[trial.id] for trial in chain) * (share / 3600)
        hours[device] = hours.get(device, Span(0, 0)) + spent
    return hours


def _jobs(resources: Resources, shares: dict[Key, float], asked: int | None) -> tuple[int, str]:
    """Return the number of concurrent jobs, and what determines it."""
    if asked:
        return asked, "--jobs"
    if resources.concurrency:
        return resources.concurrency, "resources.concurrency"
    share = max(shares.values(), default=0.0)
    fitting = cpus_here() // resources.cpus
    gpus = _gpus()
    return min(fitting, gpu_needs.jobs_at_once(share, gpus)) if share and gpus else fitting, "what fits here"


def _gpus() -> int:
    """Return the number of GPUs of this machine, counted without importing torch."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is not None:
        return len([word for word in visible.split(",") if word.strip() not in ("", "-1")])
    return len(list(Path("/proc/driver/nvidia/gpus").glob("*")))


def total(spans: Iterable[Span]) -> Span:
    return sum(spans, Span(0, 0))


def alike(trials: Iterable[Trial]) -> Iterable[Trial]:
    """Return one trial per combination of data set, model, training settings and kind of objective."""
    kinds = dict[tuple[object, ...], Trial]()
    for trial in trials:
        shared = trial.shared
        kinds[id(shared.dataset), id(shared.model), id(shared.train), shared.objective.needs] = trial
    return kinds.values()


def shares_of(grid_state: GridState, trials: Sequence[Trial]) -> dict[Key, float]:
    """Return the largest GPU share for each data set and recipe."""
    resources, keys = grid_state.grid.resources, dict.fromkeys(map(Key.of, trials))
    if not resources.shares_gpus:
        return dict.fromkeys(keys, resources.gpus(0.0))
    largest, known = needs_of(grid_state, trials), grid_state.grid.catalog
    return {key: largest[key].share() if key in largest else known.recipe(key.recipe).gpu for key in keys}


def needs_of(grid_state: GridState, trials: Sequence[Trial]) -> dict[Key, Need]:
    """Return the largest GPU memory need for each data set and recipe, on the smallest GPU it was measured on."""
    largest = dict[Key, Need]()
    for trial in alike(trials) if grid_state.home.memory.exists() else ():
        key, on_devices = Key.of(trial), gpu_needs.read(grid_state.home, speed_probes.speed_of(trial.settings))
        if on_devices:
            need = gpu_needs.smallest(on_devices.values())
            largest[key] = max(need, largest.get(key, need), key=Need.share)
    return largest


@dataclass(frozen=True)
class RecipeWork:
    """The remaining work for a recipe on a data set."""

    dataset: str
    recipe: str
    trials: int
    epochs: int
    """Epochs per trial; 0: an ensemble, which trains nothing."""
    steps: int | None
    """Steps per epoch; None: the size of the data set is unknown until it is opened."""
    views: int | None
    """Views that a frozen backbone has to process, once for all trials."""
    after: tuple[str, ...]
    """The recipes of its members, or the recipe that this recipe starts from."""

    @property
    def all_steps(self) -> int | None:
        return None if self.steps is None else self.trials * self.epochs * self.steps

    def to_dict(self) -> dict[str, Any]:
        return {**asdict(self), "all_steps": self.all_steps}

    def line(self) -> str:
        """Return `45 x vsepp-r152 on coco: 30 epochs of 4,426 steps, 5,975,100 in all; ... forward passes ...`."""
        names = " and ".join(filter(None, [", ".join(self.after[:-1]), *self.after[-1:]]))
        after = f", each after its {names}" if names else ""
        if not self.epochs:
            return f"{self.trials} x {self.recipe} on {self.dataset}{after}: trains nothing"
        epochs = counted(self.epochs, "epoch")
        steps = f" of {counted(self.steps, 'step')}, {self.all_steps:,} in all" if self.steps is not None else ""
        views = f"; {self.views:,} forward passes of its backbone, cached" if self.views else ""
        return f"{self.trials} x {self.recipe} on {self.dataset}{after}: {epochs}{steps}{views}"


def work_of(grid_state: GridState, trials: Iterable[Trial]) -> list[RecipeWork]:
    """Return the work of training these trials, one entry per data set, recipe and number of epochs, parents first."""
    work = list[RecipeWork]()
    for (key, epochs), members in grouped(((Key.of(trial), trial.epochs), trial) for trial in trials).items():
        shared = members[0].shared
        network, sizes = shared.model.image.feature_network, grid_state.data.sizes(shared)
        views = views_of(network, sizes) if epochs and sizes and network else None
        steps = grid_state.data.epoch_steps(shared) if epochs else 0
        parents = grid_state.grid.catalog.recipe(key.recipe).parents
        work.append(RecipeWork(*key, len(members), epochs, steps, views, parents))
    return work


def reached(folder: TrialFolder) -> tuple[int, int]:
    """Return the epochs and steps at a trial's last checkpoint, as far as known without opening it."""
    if not (folder.last_checkpoint.exists() or folder.previous_checkpoint.exists()):
        return 0, 0
    row = folder.last_row() or {"epoch": 0, "step": 0}
    latest = folder.latest()
    # only a trial that was asked to stop leaves a checkpoint of its last step
    stopped = latest is not None and latest.outcome() == attempts.Failure.PREEMPTED
    step = latest.step() if latest and stopped else 0
    return int(row["epoch"]), max(int(row["step"]), step)


def views_of(network: Any, sizes: dict[str, tuple[int, int]]) -> int:
    """Return the number of images that a frozen backbone has to process; `sizes`: images and captions by split."""
    return int(network.crops) * sizes["train"][0] + sizes["val"][0] + sizes["test"][0]
