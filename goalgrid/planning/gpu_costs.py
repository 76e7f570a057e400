"""What share of a GPU trials get: the grid's word, else what the memory probe measured, else the recipe's word."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from goalgrid.planning.overview import Overview
from grid import catalog
from grid.expansion import Trial
from grid.store import gpu_needs
from grid.store.gpu_needs import Need
from grid.store.speed_probes import speed_of


class Key(NamedTuple):
    """A data set and a recipe: trials that have both in common cost alike."""

    dataset: str
    recipe: str

    @classmethod
    def of(cls, trial: Trial) -> "Key":
        return cls(trial.shared.dataset.name, trial.shared.recipe)

    def __str__(self) -> str:
        return f"{self.recipe} on {self.dataset}"


def alike(trials: Iterable[Trial]) -> Iterable[Trial]:
    """One trial for every choice of data set, model and training settings."""
    return {(id(t.shared.dataset), id(t.shared.model), id(t.shared.train)): t for t in trials}.values()


def shares(overview: Overview, trials: Sequence[Trial]) -> dict[Key, float]:
    """The largest share of each data set and recipe."""
    resources, keys = overview.grid.resources, dict.fromkeys(map(Key.of, trials))
    if resources.gpu is not None or resources.replicas > 1:
        return dict.fromkeys(keys, resources.gpus(0.0))
    needs = measured(overview, trials)
    return {key: needs[key].share() if key in needs else catalog.recipe(key.recipe).gpu for key in keys}


def measured(overview: Overview, trials: Sequence[Trial]) -> dict[Key, Need]:
    """The largest need of each data set and recipe, on the smallest GPU that it was measured on."""
    needs = dict[Key, Need]()
    if not overview.home.memory.exists():
        return needs
    for trial in alike(trials):
        key, measurements = Key.of(trial), gpu_needs.read(overview.home, speed_of(trial.settings))
        if measurements:
            need = gpu_needs.smallest(measurements)
            needs[key] = max(need, needs.get(key, need), key=Need.share)
    return needs


def lines(overview: Overview, trials: Sequence[Trial]) -> list[str]:
    """A line for each data set and recipe whose memory was measured."""
    return [f"{key}: {need.text()}" for key, need in measured(overview, trials).items()]
