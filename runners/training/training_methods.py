"""The companions of a training: the parts that its objective adds to the shared loop."""

from collections.abc import Callable
from typing import Any

from goalgrid.grid.settings import TrialSettings, components
from goalgrid.retrieval.components.training_method import TrainingMethod
from goalgrid.retrieval.splits.pairs import Pairs
from goalgrid.runners.training.inputs import Inputs


def kinds(settings: TrialSettings) -> list[type[TrainingMethod]]:
    """The classes of a training's companions; an ensemble trains nothing."""
    needed = [] if settings.ensemble else components.of_objective(settings.objective.name)
    return [components.loaded(part.companion) for part in needed if part.companion]


def prepared(settings: TrialSettings, of: Callable[[type[TrainingMethod]], Any]) -> dict[str, Any]:
    """The inputs that `of` gives of the companions' classes, by their names."""
    return {kind.name: of(kind) for kind in kinds(settings)}


def companions_of(settings: TrialSettings, inputs: Inputs) -> list[TrainingMethod]:
    """The companions before training."""
    return [kind(settings, inputs.pairs, inputs.device, inputs.prepared.get(kind.name)) for kind in kinds(settings)]


def sources(settings: TrialSettings, inputs: Inputs) -> dict[str, str]:
    """Fingerprints of the inputs that the companions prepared."""
    return {
        name: digest
        for kind in kinds(settings)
        for name, digest in kind.sources(inputs.prepared.get(kind.name)).items()
    }


def selecting(settings: TrialSettings, pairs: Pairs) -> int:
    """The number of validation images that choose the checkpoint: those of the settings, less those of companions."""
    images, _ = pairs.val.first(settings.dataset.val_images)
    for kind in kinds(settings):
        images = kind.selecting(images)
    return images


def learning(settings: TrialSettings) -> list[str]:
    """Names in a checkpoint of modules beside the model that may learn."""
    return ["objective", *(kind.name for kind in kinds(settings))]
