"""What share of a GPU trials get: the grid's word, else what the memory probe measured, else the recipe's word."""

from collections.abc import Sequence

from goalgrid.planning.overview import Overview
from grid import catalog
from grid.expansion import Trial
from grid.store import gpu_needs
from grid.store.gpu_needs import Need
from grid.store.speed_probes import speed_of

Key = tuple[str, str]
"""Data set and recipe."""


def shares(overview: Overview, trials: Sequence[Trial]) -> dict[Key, float]:
    """The largest share of each data set and recipe."""
    resources, keys = overview.grid.resources, dict.fromkeys(map(_key, trials))
    if resources.gpu is not None or resources.replicas > 1:
        return dict.fromkeys(keys, resources.gpus(0.0))
    needs = measured(overview, trials)
    return {key: needs[key].share() if key in needs else catalog.recipe(key[1]).gpu for key in keys}


def measured(overview: Overview, trials: Sequence[Trial]) -> dict[Key, Need]:
    """The largest need of each, on the smallest GPU that it was measured on."""
    needs = dict[Key, Need]()
    if not overview.home.memory.exists():
        return needs
    alike = {(id(t.shared.dataset), id(t.shared.model), id(t.shared.train)): t for t in trials}
    for trial in alike.values():
        known, key = gpu_needs.read(overview.home, speed_of(trial.settings)), _key(trial)
        if known:
            needs[key] = max([gpu_needs.smallest(known), *([needs[key]] if key in needs else [])], key=Need.share)
    return needs


def lines(overview: Overview, trials: Sequence[Trial]) -> list[str]:
    """A line for each whose memory was measured."""
    found = measured(overview, trials)
    return [f"{recipe} on {dataset}: {need.text()}" for (dataset, recipe), need in found.items()]


def _key(trial: Trial) -> Key:
    return trial.shared.dataset.name, trial.shared.recipe
