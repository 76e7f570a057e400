"""Look up, prepare and build the training methods that a trial's objective adds to the training loop."""

from collections.abc import Callable
from typing import Any

from goalgrid.grid.settings import TrialSettings, components
from goalgrid.retrieval.components.training_method import TrainingMethod
from goalgrid.retrieval.splits.pairs import Pairs
from goalgrid.runners.training.inputs import Inputs


def classes(settings: TrialSettings) -> list[type[TrainingMethod]]:
    """Return the classes of a trial's training methods; an ensemble has none, since it is not trained."""
    needed = [] if settings.ensemble else components.of_objective(settings.objective)
    return [components.loaded(component.training_method) for component in needed if component.training_method]


def prepared(settings: TrialSettings, of: Callable[[type[TrainingMethod]], Any]) -> dict[str, Any]:
    """Return the inputs that `of` computes for each training method, by the method's name."""
    return {method.name: of(method) for method in classes(settings)}


def methods_of(settings: TrialSettings, inputs: Inputs) -> list[TrainingMethod]:
    """Build the training methods in their initial state."""
    return [
        method(settings, inputs.pairs, inputs.device, inputs.prepared.get(method.name)) for method in classes(settings)
    ]


def sources(settings: TrialSettings, inputs: Inputs) -> dict[str, str]:
    """Return fingerprints of the inputs that training methods prepared."""
    return {
        name: digest
        for method in classes(settings)
        for name, digest in method.sources(inputs.prepared.get(method.name)).items()
    }


def selecting(settings: TrialSettings, pairs: Pairs) -> int:
    """Return how many validation images select the checkpoint: `dataset.val_images` minus those of training methods."""
    images, _ = pairs.val.first(settings.dataset.val_images)
    for method in classes(settings):
        images = method.selecting(images)
    return images


def learning(settings: TrialSettings) -> list[str]:
    """Return the names in a checkpoint of modules that learn in addition to the model."""
    return ["objective", *(method.name for method in classes(settings))]
