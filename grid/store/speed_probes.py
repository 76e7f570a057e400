"""Speed probes: timings of a few steps of a recipe on a data set, stored in the grid's folder for later plans."""

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
"""Training settings that affect values, but not the cost of a step."""


@dataclass(frozen=True)
class Probe:
    """The measured cost of a trial.

    Args:
        settings: the key of the trial from `speed_of`.
        least, most: lower and upper quartile of the seconds per step.
        evaluation: seconds per validation.
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
    """Return a key that is equal for trials with equal cost per step.

    It is a hash of all settings except seed, epochs, `RATES` and the objective, and of the components that the
    objective needs.
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
    """Read the stored probes; empty if the file is missing, damaged or from another version."""
    try:
        return [Probe(**content) for content in parsed_json(regular_bytes(folder.probe))]
    except (OSError, ValueError, TypeError):
        return []


def remember(folder: GridFolder, probes: Iterable[Probe]) -> None:
    """Store probes, replacing earlier ones with the same recipe and data set; raise a UserError if that fails."""
    by_cell = {(probe.dataset, probe.recipe): probe for probe in [*read(folder), *probes]}
    write_json(folder.probe, [asdict(probe) for probe in by_cell.values()])
