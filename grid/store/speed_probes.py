"""Probes: what a few steps of a recipe on a data set took, kept in the grid's folder for later plans."""

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass

from grid.identity import canonical, digest
from grid.settings import TrialSettings
from grid.store.files import write_json
from grid.store.home import GridFolder


@dataclass(frozen=True)
class Probe:
    """One measurement.

    Args:
        settings: what `speed_of` gave for the trial that was measured.
        steps: that were measured.
        least, most: seconds of one step, a quarter of the measured ones being below and above.
        evaluation: seconds of one validation.
        epoch_steps: steps of one epoch.
        best: bytes of the best checkpoint.
        rest: bytes of what a finished trial keeps beside it.
        gpu: whether a GPU trained.
    """

    dataset: str
    recipe: str
    settings: str
    steps: int
    least: float
    most: float
    evaluation: float
    epoch_steps: int
    best: int
    rest: int
    gpu: bool


def speed_of(settings: TrialSettings) -> str:
    """A word that is the same for trials whose steps cost alike: all settings but objective, seed and epochs."""
    content = canonical(settings)
    content["train"].pop("epochs", None)
    for name in ("objective", "seed", "starts_from"):
        content.pop(name, None)
    return digest(content)[:16]


def read(folder: GridFolder) -> list[Probe]:
    """All that this grid's folder remembers."""
    if not folder.probe.exists():
        return []
    return [Probe(**content) for content in json.loads(folder.probe.read_text(encoding="utf-8"))]


def remember(folder: GridFolder, probes: Iterable[Probe]) -> None:
    """Keep these, instead of earlier ones of the same recipe on the same data set.

    Raises:
        UserError: the runs folder cannot be written.
    """
    kept = {(probe.dataset, probe.recipe): probe for probe in [*read(folder), *probes]}
    write_json(folder.probe, [asdict(probe) for probe in kept.values()])
