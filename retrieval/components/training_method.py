"""Training methods: what a method adds to training in addition to its loss.

A training has one for each component that its objective needs (`goalgrid.grid.settings.components`); most have none.
The learner calls their hooks at fixed points.
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
    """What a training method may use to prepare.

    Args:
        root: folder of the data set; None: it has none.
        cache: folder for results that are computed once.
        ranker: maps the id of a finished trial to a checksum of its model, and to a function that embeds the training
            split by that model: unit vectors of images and captions, and the image of each caption.
        beat: is called after each step of a long computation.
    """

    root: Path | None
    cache: Path
    ranker: Callable[[str], tuple[str, Callable[[], tuple[Any, Any, np.ndarray]]]]
    beat: Callable[[], None] = lambda: None


class Cost(NamedTuple):
    """What a training method adds to the memory and time of a step."""

    extra_pairs: int = 0
    """Extra pairs embedded per pair of the batch."""
    meta_batch: bool = False
    """Whether each step also reads a batch of the validation split."""


class Request(NamedTuple):
    """What a training method adds to one batch."""

    extra_pairs: tuple[Int[np.ndarray, " f"], Int[np.ndarray, " f"]] | None = None
    """Rows of training images and of captions to embed after the batch's own pairs."""
    values: Float[Tensor, "networks b"] | None = None
    """Values that the loss reads for each pair, as each network reads them; in host memory."""
    meta_batch: Int[np.ndarray, " m"] | None = None
    """Rows of validation captions for `before_step`."""


NOTHING = Request()


class TrainingMethod:
    """Base class of training methods, whose hooks do nothing. `prepared` is the result of `prepare`."""

    name: ClassVar[str]
    """Key of its state in checkpoints, and of its values for the loss."""
    cost: ClassVar[Cost] = Cost()
    reads_scores: bool = False
    """Whether `on_scores` is called; estimates of memory and time set it to False."""
    network: nn.Module | None = None
    """A network that learns in addition to the model; a checkpoint of the best model includes it."""

    def __init__(self, settings: TrialSettings, pairs: Pairs, device: torch.device, prepared: Any) -> None:
        self.settings, self.device, self.prepared = settings, device, prepared

    @classmethod
    def check(cls, dataset: DatasetSettings, root: Path | None, pairs: Pairs) -> None:
        """Check the files that it will read below the data set's root; raise a UserError if they are wrong."""

    @classmethod
    def prepare(cls, settings: TrialSettings, pairs: Pairs, around: Around) -> Any:
        """Compute what all epochs read, before the first one; raise a UserError if files do not fit."""
        return None

    @classmethod
    def rehearsal(cls, pairs: Pairs) -> Any:
        """Return a stand-in for the result of `prepare`, for measurements of memory and time."""
        return None

    @classmethod
    def sources(cls, prepared: Any) -> dict[str, str]:
        """Return fingerprints of those prepared inputs that change results, for checkpoints and the record."""
        return {}

    @classmethod
    def selecting(cls, images: int) -> int:
        """Return how many of these validation images select the checkpoint."""
        return images

    def join(self, objective: Objective) -> None:
        """Change the objective before training, if the method has to."""

    def begin(self, epoch: int, order: Callable[[int], Int[Tensor, " n"]]) -> None:
        """Begin an epoch; `order` maps an epoch to the rows of its captions, in training order."""

    def batch(self, owners: Int[np.ndarray, " b"], texts: Int[Tensor, " b"], index: int, seed: int) -> Request:
        """Return what to add to batch `index` of the epoch.

        Args:
            owners: row of each pair's image.
            texts: row of each pair's caption.
            index: number of the batch in its epoch, from 0.
            seed: a seed for this batch.
        """
        return NOTHING

    def split(self, network: Any, image: Embedded, text: Embedded, count: int) -> tuple[Embedded, Embedded, Extra]:
        """Split off the embeddings of extra pairs; return the first `count` pairs, and values for the loss."""
        return image, text, {}

    def on_scores(self, network: int, sim: Float[Tensor, "b b"]) -> None:
        """Read the scores of a batch by the network of this index, without gradients."""

    def before_step(self, model: nn.Module, lr: float, batch: Any, mean_loss: Callable[..., Float[Tensor, ""]]) -> None:
        """Run an inner update (e.g. meta-learning) before the optimizer step; must restore the model.

        `mean_loss` maps a batch, and optionally another objective, to the mean loss per pair.
        """

    def report(self) -> dict[str, float]:
        """Return values of the epoch for the history."""
        return {}

    def state(self) -> dict[str, Any]:
        """Return the state that later epochs depend on; empty if there is none."""
        return {}

    def load(self, state: Mapping[str, Any]) -> None:
        """Restore what `state` returned."""
