"""Speed probes: measurements of a few steps of a recipe on a data set, stored in the grid's folder for later plans."""

from collections.abc import Iterable
from dataclasses import asdict, dataclass

from goalgrid.grid.errors import parsed_json, regular_bytes
from goalgrid.grid.identity import canonical, digest
from goalgrid.grid.settings import TrialSettings
from goalgrid.grid.store.files import write_json
from goalgrid.grid.store.home import GridFolder

RATES = (
    "lr", "beta2", "schedule", "rise_share", "decay_every", "decay_factor", "clip_norm", "selection"
)  # fmt: skip
"""Settings of a training that decide values and no operation."""


@dataclass(frozen=True)
class Probe:
    """The measurement of a trial.

    Args:
        settings: the word that `speed_of` gives for the trial.
        least, most: lower and upper quartile of the seconds of a step.
        evaluation: seconds of a validation.
        best: bytes of the best checkpoint.
        rest: bytes of a finished trial's other files.
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
    """Return a word for trials whose steps cost the same: of all settings but seed, epochs and `RATES`.

    Of the objective, it has the components that it needs.
    """
    content = canonical(settings)
    for name in ("epochs", *RATES):
        content["train"].pop(name, None)
    again = settings.train.model_dump(include={"micro_batch", "checkpoint_activations"}, exclude_defaults=True)
    content["train"] |= again  # no part of the identity
    for name in ("objective", "seed", "starts_from", "ranker"):
        content.pop(name, None)
    return digest(content | dict.fromkeys(settings.objective.needs, True))[:16]


def read(folder: GridFolder) -> list[Probe]:
    """Read the stored probes; none if the file is missing or damaged, or another version wrote it."""
    try:
        return [Probe(**content) for content in parsed_json(regular_bytes(folder.probe))]
    except (OSError, ValueError, TypeError):
        return []


def remember(folder: GridFolder, probes: Iterable[Probe]) -> None:
    """Keep probes in place of earlier ones of their recipe and data set; UserError: they cannot be written."""
    by_cell = {(probe.dataset, probe.recipe): probe for probe in [*read(folder), *probes]}
    write_json(folder.probe, [asdict(probe) for probe in by_cell.values()])
