"""What the rest of a grid will cost: CPU or GPU hours, time on the clock, disk; each as a range, with its source.

A figure rests on the grid's finished trials of the same data set and recipe, or on a probe; never on a guess.
"""

import json
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from goalgrid.planning import gpu_costs
from goalgrid.planning.gpu_costs import Key, alike
from goalgrid.planning.overview import Overview, many
from goalgrid.planning.work import epoch_steps, reached
from grid.expansion import Trial, chains
from grid.resources import Resources
from grid.store import speed_probes
from grid.store.files import bytes_below
from grid.store.home import State

RUNNING = 7
"""Times the best checkpoint that a trial needs while it runs: two checkpoints of weights and both moments of Adam."""

CLOCK = (("days", 86400.0), ("hours", 3600.0), ("minutes", 60.0), ("seconds", 1.0))
BYTES = (("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3))


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
        """`1.2 to 1.4 GB`, or one figure where both ends read the same."""
        least, most = (_figure(value / factor) for value in (self.least, self.most))
        return f"{least} {unit}" if least == most else f"{least} to {most} {unit}"

    def scaled(self, units: Sequence[tuple[str, float]]) -> str:
        """In the largest of these units that is not too large."""
        return self.text(*next((unit for unit in units if self.most >= unit[1]), units[-1]))

    def to_list(self) -> list[float]:
        return [self.least, self.most]


@dataclass(frozen=True)
class Basis:
    """What trials of one recipe on one data set took.

    Args:
        step: seconds of one step, with its share of validation.
        epoch_steps: steps of one epoch.
        best: bytes of the best checkpoint.
        kept: bytes of a finished trial's folder.
        source: where these figures are from.
    """

    step: Span
    epoch_steps: int
    best: Span
    kept: Span
    gpu: bool
    source: str


@dataclass(frozen=True)
class GridCost:
    """What the trials cost that a run would train.

    Args:
        hours: hours of CPU or GPU, by which of the two.
        wall: seconds on the clock.
        disk: bytes that stay.
        meanwhile: further bytes while trials run.
        jobs: how many run at a time.
        said: what sets the number of jobs.
        unknown: data sets and recipes without any measurement.
    """

    hours: dict[str, Span]
    wall: Span
    disk: Span
    meanwhile: Span
    jobs: int
    said: str
    sources: dict[Key, str]
    unknown: tuple[Key, ...]

    def lines(self) -> list[str]:
        hours = " and ".join(_duration_of(span, what) for what, span in self.hours.items())
        figures = [
            f"{hours}; {self.wall.scaled(CLOCK)} on the clock with {self.jobs} at a time ({self.said})",
            f"{self.disk.scaled(BYTES)} of disk, and {self.meanwhile.scaled(BYTES)} more while it runs",
        ]
        known = [f"{key}: from {source}" for key, source in self.sources.items()]
        unknown = [f"{key}: not known, so not counted" for key in self.unknown]
        ask = ["the same command with --probe measures what is not known"] if self.unknown else []
        return [*(figures if self.sources else ()), *known, *unknown, *ask]

    def to_dict(self) -> dict[str, Any]:
        return {
            "hours": {what: span.to_list() for what, span in self.hours.items()},
            "wall_seconds": self.wall.to_list(),
            "disk_bytes": self.disk.to_list(),
            "disk_bytes_while_running": self.meanwhile.to_list(),
            "jobs": self.jobs,
            "rests_on": {str(key): source for key, source in self.sources.items()},
            "unknown": [str(key) for key in self.unknown],
        }


def cost_of(overview: Overview, trials: Sequence[Trial], replaced: Iterable[str] = (), *, jobs: int | None) -> GridCost:
    """What training these trials costs.

    Args:
        replaced: ids of the trials that begin anew.
        jobs: trials at a time; None: as the grid says, else what fits here.
    """
    keys = dict.fromkeys(map(Key.of, trials))
    bases = {key: basis for key in keys if (basis := _from_records(overview, key) or _from_probe(overview, key))}
    anew = set(replaced)
    known = [trial for trial in trials if Key.of(trial) in bases] if bases else []
    seconds = dict[str, Span]()
    for trial in known:
        basis = bases[Key.of(trial)]
        seconds[trial.id] = basis.step * _steps_left(overview, trial, basis, trial.id in anew)
    shares = gpu_costs.shares(overview, known)
    asked, said = _jobs(overview.grid.resources, known, bases, shares, jobs)
    in_order = chains(known)
    together = max(1, min(asked, len(in_order)))
    return GridCost(
        _hours(overview.grid.resources, in_order, seconds, bases, shares),
        _wall([_total(seconds[trial.id] for trial in chain) for chain in in_order], together),
        _total(bases[Key.of(trial)].kept for trial in known),
        Span.of(end for basis in bases.values() for end in basis.best.to_list()) * (RUNNING * together),
        together,
        said if together == asked else "as many as there are",
        {key: basis.source for key, basis in bases.items()},
        tuple(key for key in keys if key not in bases),
    )


def unmeasured(overview: Overview, trials: Iterable[Trial]) -> list[Trial]:
    """One trial of each data set and recipe whose cost no finished trial tells."""
    first = {Key.of(trial): trial for trial in reversed(list(trials))}
    return [trial for key, trial in first.items() if not _from_records(overview, key)]


def _from_records(overview: Overview, key: Key) -> Basis | None:
    rows = [row for row in overview.records if (row["dataset"], row["recipe"]) == key]
    if not rows:
        return None
    folders = [overview.home.trial(row["trial_id"]) for row in rows]
    return Basis(
        Span.of(row["train_seconds"] / row["steps"] for row in rows),
        max(row["steps"] // row["epochs"] for row in rows),
        Span.of(folder.best_checkpoint.stat().st_size for folder in folders if folder.best_checkpoint.exists()),
        Span.of(bytes_below(folder.path) for folder in folders),
        any(json.loads(row["environment"]).get("device_type") == "cuda" for row in rows),
        many(len(rows), "finished trial"),
    )


def _from_probe(overview: Overview, key: Key) -> Basis | None:
    """The last probe of this data set and recipe, if a trial of the grid still has the settings that it measured."""
    probes = speed_probes.read(overview.home.grid(overview.grid.name))
    probe = next((probe for probe in probes if (probe.dataset, probe.recipe) == key), None)
    if probe is None:
        return None
    trials = alike(trial for trial in overview.trials if Key.of(trial) == key)
    if all(speed_probes.speed_of(trial.settings) != probe.settings for trial in trials):
        return None
    validation = probe.evaluation / probe.epoch_steps
    step = Span(probe.least + validation, probe.most + validation)
    best, kept = Span(probe.best, probe.best), Span(probe.best + probe.rest, probe.best + probe.rest)
    return Basis(step, probe.epoch_steps, best, kept, probe.gpu, f"a probe of {many(probe.steps, 'step')}")


def _steps_left(overview: Overview, trial: Trial, basis: Basis, anew: bool) -> int:
    steps = epoch_steps(trial.shared.dataset.name, trial.shared.train) or basis.epoch_steps
    behind = 0 if anew or overview.states[trial.id] is State.PLANNED else reached(overview.folder(trial))[1]
    return max(0, steps * trial.shared.train.epochs - behind)


def _wall(chains: Sequence[Span], together: int) -> Span:
    """All chains, so many at a time, but no less than the longest chain, whose trials wait for one another."""
    total = _total(chains) * (1 / together)
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
        what = "GPU" if any(bases[Key.of(trial)].gpu for trial in chain) else "CPU"
        share = max(shares[Key.of(trial)] for trial in chain) if what == "GPU" else resources.cpus
        hours[what] = hours.get(what, Span(0, 0)) + _total(seconds[trial.id] for trial in chain) * (share / 3600)
    return hours


def _jobs(
    resources: Resources,
    trials: Sequence[Trial],
    bases: dict[Key, Basis],
    shares: dict[Key, float],
    asked: int | None,
) -> tuple[int, str]:
    """How many jobs run at a time, and what says so."""
    if asked:
        return asked, "--jobs"
    if resources.concurrency:
        return resources.concurrency, "resources.concurrency"
    share = max((shares[Key.of(trial)] for trial in trials if bases[Key.of(trial)].gpu), default=0.0)
    fitting = (os.cpu_count() or 1) // resources.cpus
    return min(fitting, int(_gpus() / share)) if share and _gpus() else fitting, "what fits here"


def _gpus() -> int:
    """GPUs of this machine, counted without torch."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is not None:
        return len([word for word in visible.split(",") if word.strip() not in ("", "-1")])
    return len(list(Path("/proc/driver/nvidia/gpus").glob("*")))


def _total(spans: Iterable[Span]) -> Span:
    return sum(spans, Span(0, 0))


def _figure(value: float) -> str:
    """Two digits that count: 0.012, 1.2, 12; thousands in full."""
    return f"{value:,.0f}" if value >= 10 else f"{value:.2g}"


def _duration_of(span: Span, what: str) -> str:
    if span.most >= 1 / 60:
        return span.text(f"{what} hours") if span.most >= 0.1 else span.text(f"{what} minutes", 1 / 60)
    return span.text(f"{what} seconds", 1 / 3600)
