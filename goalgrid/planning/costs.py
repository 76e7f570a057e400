"""What the rest of a grid will cost: CPU or GPU hours, time on the clock, disk; with a range and what it rests on.

A figure rests on the grid's finished trials of the same data set and recipe, or on a probe; never on a guess.
"""

import json
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from goalgrid.planning import gpu_costs
from goalgrid.planning.gpu_costs import Key
from goalgrid.planning.overview import Overview, many
from goalgrid.planning.work import epoch_steps, reached
from grid.expansion import Trial, chains
from grid.resources import Resources
from grid.store import speed_probes
from grid.store.home import State, TrialFolder

RUNNING = 7
"""Times the best checkpoint that a trial needs while it runs: two checkpoints of weights and both moments of Adam."""


@dataclass(frozen=True)
class Span:
    """From the least to the most."""

    least: float
    most: float

    @classmethod
    def of(cls, values: Iterable[float]) -> "Span":
        known = list(values)
        return cls(min(known, default=0.0), max(known, default=0.0))

    def __add__(self, other: "Span") -> "Span":
        return Span(self.least + other.least, self.most + other.most)

    def __mul__(self, factor: float) -> "Span":
        return Span(self.least * factor, self.most * factor)

    def text(self, unit: str, factor: float = 1.0) -> str:
        """`1.2 to 1.4 GB`, or one figure where both are shown alike."""
        least, most = (_figure(value / factor) for value in (self.least, self.most))
        return f"{least} {unit}" if least == most else f"{least} to {most} {unit}"

    def to_list(self) -> list[float]:
        return [self.least, self.most]


@dataclass(frozen=True)
class Basis:
    """What trials of one recipe on one data set took.

    Args:
        step: seconds, with its share of validation.
        epoch_steps: steps of one epoch.
        best: bytes of the best checkpoint.
        kept: bytes of a finished trial's folder.
        source: where this is known from.
    """

    step: Span
    epoch_steps: int
    best: Span
    kept: Span
    gpu: bool
    source: str


@dataclass(frozen=True)
class Cost:
    """Of the trials that a run would train.

    Args:
        hours: by what they are hours of, CPU or GPU.
        wall: seconds on the clock.
        disk: bytes that stay.
        meanwhile: bytes that are needed beside while trials run.
        jobs: at a time.
        sources: by data set and recipe.
        unknown: data sets and recipes that nothing is known of.
    """

    hours: dict[str, Span]
    wall: Span
    disk: Span
    meanwhile: Span
    jobs: int
    said: str
    """What says so."""
    sources: dict[Key, str]
    unknown: tuple[Key, ...]

    def lines(self) -> list[str]:
        hours = " and ".join(_duration_of(span, what) for what, span in self.hours.items())
        figures = [
            f"{hours}; {_clock(self.wall)} on the clock with {self.jobs} at a time ({self.said})",
            f"{_bytes(self.disk)} of disk, and {_bytes(self.meanwhile)} more while it runs",
        ]
        known = [f"{recipe} on {dataset}: from {source}" for (dataset, recipe), source in self.sources.items()]
        unknown = [f"{recipe} on {dataset}: not known, so not counted" for dataset, recipe in self.unknown]
        ask = ["the same command with --probe measures what is not known"] if self.unknown else []
        return [*(figures if self.sources else ()), *known, *unknown, *ask]

    def to_dict(self) -> dict[str, Any]:
        return {
            "hours": {what: span.to_list() for what, span in self.hours.items()},
            "wall_seconds": self.wall.to_list(),
            "disk_bytes": self.disk.to_list(),
            "disk_bytes_while_running": self.meanwhile.to_list(),
            "jobs": self.jobs,
            "rests_on": {f"{recipe} on {dataset}": source for (dataset, recipe), source in self.sources.items()},
            "unknown": [f"{recipe} on {dataset}" for dataset, recipe in self.unknown],
        }


def cost_of(overview: Overview, trials: Sequence[Trial], replaced: Iterable[str] = (), *, jobs: int | None) -> Cost:
    """What training these costs.

    Args:
        replaced: ids of those that begin anew.
        jobs: at a time; None: as the grid says, else what fits here.
    """
    keys = dict.fromkeys(_key(trial) for trial in trials)
    bases = {key: basis for key in keys if (basis := _basis(overview, key))}
    anew = set(replaced)
    known = [trial for trial in trials if _key(trial) in bases] if bases else []
    seconds = {
        trial.id: bases[_key(trial)].step * _steps_left(overview, trial, bases[_key(trial)], trial.id in anew)
        for trial in known
    }
    shares = gpu_costs.shares(overview, known)
    asked, said = _jobs(overview.grid.resources, known, bases, shares, jobs)
    in_order = chains(known)
    together = max(1, min(asked, len(in_order)))
    return Cost(
        _hours(overview.grid.resources, in_order, seconds, bases, shares),
        _wall([_sum(seconds[trial.id] for trial in chain) for chain in in_order], together),
        _sum(bases[_key(trial)].kept for trial in known),
        Span.of(end for basis in bases.values() for end in basis.best.to_list()) * (RUNNING * together),
        together,
        said if together == asked else "as many as there are",
        {key: basis.source for key, basis in bases.items()},
        tuple(key for key in keys if key not in bases),
    )


def unmeasured(overview: Overview, trials: Iterable[Trial]) -> list[Trial]:
    """One trial of each data set and recipe among these that no finished trial tells the cost of."""
    first = {_key(trial): trial for trial in reversed(list(trials))}
    return [trial for key, trial in first.items() if not _from_records(overview, key)]


def _key(trial: Trial) -> Key:
    return trial.shared.dataset.name, trial.shared.recipe


def _basis(overview: Overview, key: Key) -> Basis | None:
    return _from_records(overview, key) or _from_probe(overview, key)


def _from_records(overview: Overview, key: Key) -> Basis | None:
    rows = [row for row in overview.records if (row["dataset"], row["recipe"]) == key]
    if not rows:
        return None
    folders = [overview.home.trial(row["trial_id"]) for row in rows]
    return Basis(
        Span.of(row["train_seconds"] / row["steps"] for row in rows),
        max(row["steps"] // row["epochs"] for row in rows),
        Span.of(folder.best_checkpoint.stat().st_size for folder in folders if folder.best_checkpoint.exists()),
        Span.of(map(_size, folders)),
        any(json.loads(row["environment"]).get("device_type") == "cuda" for row in rows),
        many(len(rows), "finished trial"),
    )


def _from_probe(overview: Overview, key: Key) -> Basis | None:
    remembered = [p for p in speed_probes.read(overview.home.grid(overview.grid.name)) if (p.dataset, p.recipe) == key]
    speeds = _speeds(overview, key) if remembered else set()
    for probe in remembered:
        if probe.settings in speeds:
            share, best = probe.evaluation / probe.epoch_steps, Span(probe.best, probe.best)
            step = Span(probe.least + share, probe.most + share)
            kept = best + Span(probe.rest, probe.rest)
            return Basis(step, probe.epoch_steps, best, kept, probe.gpu, f"a probe of {many(probe.steps, 'step')}")
    return None


def _speeds(overview: Overview, key: Key) -> set[str]:
    """What `probes.speed_of` says of the trials of this data set and recipe, asked once for those alike."""
    alike = {
        (id(trial.shared.dataset), id(trial.shared.model), id(trial.shared.train)): trial
        for trial in overview.trials
        if _key(trial) == key
    }
    return {speed_probes.speed_of(trial.settings) for trial in alike.values()}


def _steps_left(overview: Overview, trial: Trial, basis: Basis, anew: bool) -> int:
    each = epoch_steps(trial.shared.dataset.name, trial.shared.train) or basis.epoch_steps
    behind = 0 if anew or overview.states[trial.id] is State.PLANNED else reached(overview.folder(trial))[1]
    return max(0, each * trial.shared.train.epochs - behind)


def _wall(chains: Sequence[Span], together: int) -> Span:
    """All of it, so many at a time, but no less than the longest chain, whose trials wait for one another."""
    total = _sum(chains) * (1 / together)
    least, most = (max((chain.to_list()[end] for chain in chains), default=0.0) for end in (0, 1))
    return Span(max(total.least, least), max(total.most, most))


def _hours(
    resources: Resources,
    jobs: Iterable[Sequence[Trial]],
    seconds: dict[str, Span],
    bases: dict[Key, Basis],
    shares: dict[Key, float],
) -> dict[str, Span]:
    """A job on half a GPU for an hour is half a GPU hour, one with two CPUs two CPU hours; a chain is one job."""
    hours: dict[str, Span] = {}
    for chain in jobs:
        what = "GPU" if any(bases[_key(trial)].gpu for trial in chain) else "CPU"
        share = max(shares[_key(trial)] for trial in chain) if what == "GPU" else resources.cpus
        hours[what] = hours.get(what, Span(0, 0)) + _sum(seconds[trial.id] for trial in chain) * (share / 3600)
    return hours


def _jobs(
    resources: Resources,
    trials: Sequence[Trial],
    bases: dict[Key, Basis],
    shares: dict[Key, float],
    asked: int | None,
) -> tuple[int, str]:
    """How many at a time, and what says so."""
    if asked:
        return asked, "--jobs"
    if resources.concurrency:
        return resources.concurrency, "resources.concurrency"
    share = max((shares[_key(trial)] for trial in trials if bases[_key(trial)].gpu), default=0.0)
    fitting = (os.cpu_count() or 1) // resources.cpus
    return min(fitting, int(_gpus() / share)) if share and _gpus() else fitting, "what fits here"


def _gpus() -> int:
    """GPUs of this machine, counted without torch."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is not None:
        return len([word for word in visible.split(",") if word.strip() not in ("", "-1")])
    return len(list(Path("/proc/driver/nvidia/gpus").glob("*")))


def _size(folder: TrialFolder) -> int:
    return sum(path.stat().st_size for path in folder.path.rglob("*") if path.is_file())


def _sum(spans: Iterable[Span]) -> Span:
    total = Span(0, 0)
    for span in spans:
        total = total + span
    return total


def _figure(value: float) -> str:
    """Two digits that count: 0.012, 1.2, 12; thousands in full."""
    return f"{value:,.0f}" if value >= 10 else f"{value:.2g}"


def _duration_of(span: Span, what: str) -> str:
    if span.most >= 1 / 60:
        return span.text(f"{what} hours") if span.most >= 0.1 else span.text(f"{what} minutes", 1 / 60)
    return span.text(f"{what} seconds", 1 / 3600)


def _clock(span: Span) -> str:
    unit, factor = next(
        (pair for pair in (("days", 86400.0), ("hours", 3600.0), ("minutes", 60.0)) if span.most >= pair[1]),
        ("seconds", 1.0),
    )
    return span.text(unit, factor)


def _bytes(span: Span) -> str:
    unit, factor = next(
        (pair for pair in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6)) if span.most >= pair[1]), ("kB", 1e3)
    )
    return span.text(unit, factor)
