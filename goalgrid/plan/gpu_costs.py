"""The share of a GPU that trials get: from the grid, else from the memory probe, else from the recipe."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from goalgrid.grid import catalog
from goalgrid.grid.expansion import Trial
from goalgrid.grid.objectives import needs
from goalgrid.grid.store import gpu_needs
from goalgrid.grid.store.gpu_needs import Need
from goalgrid.grid.store.speed_probes import speed_of
from goalgrid.reading.overview import Overview


class Key(NamedTuple):
    """A data set and a recipe: trials that share both cost the same."""

    dataset: str
    recipe: str

    @classmethod
    def of(cls, trial: Trial) -> "Key":
        return cls(trial.shared.dataset.name, trial.shared.recipe)

    def __str__(self) -> str:
        return f"{self.recipe} on {self.dataset}"


def alike(trials: Iterable[Trial]) -> Iterable[Trial]:
    """A trial for every combination of data set, model, training settings and kind of objective."""

    def settings(t: Trial) -> tuple[object, ...]:
        parts = (t.shared.dataset, t.shared.model, t.shared.train)
        return *map(id, parts), needs(t.shared.objective.name)

    return {settings(trial): trial for trial in trials}.values()


def shares(overview: Overview, trials: Sequence[Trial]) -> dict[Key, float]:
    """The largest share for each data set and recipe."""
    resources, keys = overview.grid.resources, dict.fromkeys(map(Key.of, trials))
    if resources.gpu is not None or resources.replicas > 1:
        return dict.fromkeys(keys, resources.gpus(0.0))
    largest = needs_of(overview, trials)
    return {key: largest[key].share() if key in largest else catalog.recipe(key.recipe).gpu for key in keys}


def needs_of(overview: Overview, trials: Sequence[Trial]) -> dict[Key, Need]:
    """The largest need for each data set and recipe, on the smallest GPU on which it was measured."""
    largest = dict[Key, Need]()
    for trial in alike(trials) if overview.home.memory.exists() else ():
        key, on_devices = Key.of(trial), gpu_needs.read(overview.home, speed_of(trial.settings))
        if on_devices:
            need = gpu_needs.smallest(on_devices.values())
            largest[key] = max(need, largest.get(key, need), key=Need.share)
    return largest
