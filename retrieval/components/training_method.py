"""Training methods: additions to training beyond the loss, called through hooks.

A trial has one for each component that its objective needs (`goalgrid.grid.settings.components`); most have none. The
learner calls the hooks at fixed points.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from goalgrid.grid.settings import DatasetSettings, TrialSettings
from goalgrid.objectives.objective import Objective
from goalgrid.objectives.triplets import Extra
from goalgrid.retrieval.scorers.sets import Embedded
from goalgrid.retrieval.splits.pairs import Pairs


@dataclass(frozen=True)
class Around:
    """Resources that a training method may use in `prepare`.

    Args:
        root: folder of the data set; None if it has none.
        cache: folder for cached results.
        ranker: maps the id of a finished trial to a checksum of its model and a function that embeds the training
            split with it, returning unit vectors of images and captions, and the image index of each caption.
        beat: must be called after each step of a long computation.
    """

    root: Path | None
    cache: Path
    ranker: Callable[[str], tuple[str, Callable[[], tuple[Any, Any, np.ndarray]]]]
    beat: Callable[[], None] = lambda: None


class Cost(NamedTuple):
    """The additional cost of a training method, for estimates of memory and time per step."""

    extra_pairs: int = 0
    """Extra pairs to embed per pair of the batch."""
    meta_batch: bool = False
    """Whether each step also reads a batch of the validation split."""


class Request(NamedTuple):
    """Data that a training method requests for one batch."""

    extra_pairs: tuple[Int[np.ndarray, " f"], Int[np.ndarray, " f"]] | None = None
    """Indices of training images and captions to embed after the batch's own pairs."""
    values: Float[Tensor, "networks b"] | None = None
    """Values for the loss, one per network and pair; in host memory."""
    meta_batch: Int[np.ndarray, " m"] | None = None
    """Indices of validation captions for `before_step`."""


NOTHING = Request()


class TrainingMethod:
    """Base class of training methods; its hooks do nothing. `prepared` is the result of `prepare`."""

    name: ClassVar[str]
    """Key for its state in checkpoints, and for its values for the loss."""
    cost: ClassVar[Cost] = Cost()
    reads_scores: bool = False
    """Whether `on_scores` is called; set to False when memory and time are estimated."""
    network: nn.Module | None = None
    """A network trained in addition to the model; stored in the checkpoint of the best model."""

    def __init__(self, settings: TrialSettings, pairs: Pairs, device: torch.device, prepared: Any) -> None:
        self.settings, self.device, self.prepared = settings, device, prepared

    @classmethod
    def check(cls, dataset: DatasetSettings, root: Path | None, pairs: Pairs) -> None:
        """Check the files that the method reads below the data set's root; raise UserError if they are invalid."""

    @classmethod
    def prepare(cls, settings: TrialSettings, pairs: Pairs, around: Around) -> Any:
        """Compute inputs shared by all epochs, before the first one; raise UserError if files do not match."""
        return None

    @classmethod
    def rehearsal(cls, pairs: Pairs) -> Any:
        """Return a placeholder for the result of `prepare`, to measure memory and time."""
        return None

    @classmethod
    def sources(cls, prepared: Any) -> dict[str, str]:
        """Return fingerprints of the prepared inputs that affect results, for checkpoints and the record."""
        return {}

    @classmethod
    def selecting(cls, images: int) -> int:
        """Return how many of the validation images are used to select the checkpoint."""
        return images

    def join(self, objective: Objective) -> None:
        """Modify the objective before training, if necessary."""

    def begin(self, epoch: int, order: Callable[[int], Int[Tensor, " n"]]) -> None:
        """Begin an epoch; `order` maps an epoch to its caption indices in training order."""

    def batch(self, owners: Int[np.ndarray, " b"], texts: Int[Tensor, " b"], index: int, seed: int) -> Request:
        """Return the data to add to batch `index` of the epoch.

        Args:
            owners: image index of each pair.
            texts: caption index of each pair.
            index: number of the batch in its epoch, from 0.
            seed: a seed for this batch.
        """
        return NOTHING

    def split(self, network: Any, image: Embedded, text: Embedded, count: int) -> tuple[Embedded, Embedded, Extra]:
        """Separate the embeddings of extra pairs; return the first `count` pairs, and values for the loss."""
        return image, text, {}

    def on_scores(self, network: int, sim: Float[Tensor, "b b"]) -> None:
        """Process a batch's scores from the network with this index, without gradients."""

    def before_step(self, model: nn.Module, lr: float, batch: Any, mean_loss: Callable[..., Float[Tensor, ""]]) -> None:
        """Run an inner update (e.g. meta-learning) before the optimizer step; must restore the model.

        `mean_loss` maps a batch, and optionally another objective, to the mean loss per pair.
        """

    def report(self) -> dict[str, float]:
        """Return values to log for the epoch."""
        return {}

    def state(self) -> dict[str, Any]:
        """Return the state that later epochs depend on; empty if there is none."""
        return {}

    def load(self, state: Mapping[str, Any]) -> None:
        """Restore what `state` returned."""
