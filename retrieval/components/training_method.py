"""What a method adds to training, beside its loss: a companion of the learner, which calls it at fixed points.

A training has a companion for each part that its objective needs (`goalgrid.grid.settings.components`); most have none.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

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
    """Where a companion finds what it prepares.

    Args:
        root: folder of the data set; None: it has none.
        cache: folder in which what was computed once is kept.
        ranker: gives a checksum of a finished trial, and a function that embeds the training split by its model: unit
            vectors of images and captions, and the image of each caption.
        beat: called after each step of a long computation.
    """

    root: Path | None
    cache: Path
    ranker: Callable[[str], tuple[str, Callable[[], tuple[Any, Any, np.ndarray]]]]
    beat: Callable[[], None] = lambda: None


class TrainingMethod:
    """Accompanies a trial's training; by default, no method does anything. `prepared` is what `prepare` returned."""

    name: ClassVar[str]
    """Of what it writes into checkpoints."""
    pairs_beside: ClassVar[int] = 0
    """Pairs that are embedded beside each pair of a batch."""
    second_batch: ClassVar[bool] = False
    """Whether it reads a batch of the validation split, too."""
    listens: bool = False
    """Whether it wants to see the scores of each batch; where memory and time are measured, it is set to False."""
    network: nn.Module | None = None
    """What learns beside the model; a checkpoint of the best model keeps it, too."""

    def __init__(self, settings: TrialSettings, pairs: Pairs, device: torch.device, prepared: Any) -> None:
        self.settings, self.device, self.prepared = settings, device, prepared

    @classmethod
    def check(cls, dataset: DatasetSettings, root: Path | None, pairs: Pairs) -> None:
        """Check files that it will read below the data set's root; a UserError says what is wrong with them."""

    @classmethod
    def prepare(cls, settings: TrialSettings, pairs: Pairs, around: Around) -> Any:
        """What all epochs read, computed before the first one; a UserError says which files do not fit."""
        return None

    @classmethod
    def rehearsal(cls, pairs: Pairs) -> Any:
        """What stands for the result of `prepare` where memory and time are measured."""
        return None

    @classmethod
    def sources(cls, prepared: Any) -> dict[str, str]:
        """Fingerprints of what `prepare` returned, as far as it decides numbers, for checkpoints and the record."""
        return {}

    @classmethod
    def selecting(cls, images: int) -> int:
        """How many of the validation images choose the checkpoint."""
        return images

    def join(self, objective: Objective) -> None:
        """Take part in this objective."""

    def begin(self, epoch: int, order: Callable[[int], Int[Tensor, " n"]]) -> None:
        """Make ready for an epoch; `order` gives the rows of the captions of an epoch as they are trained."""

    def further(
        self, owners: Int[np.ndarray, " b"], texts: Int[np.ndarray, " b"], place: int
    ) -> tuple[Int[np.ndarray, " f"], Int[np.ndarray, " f"]] | None:
        """Rows of images and captions that are embedded behind those of a batch, the epoch's batch number `place`."""
        return None

    def second(self, count: int, draw: int) -> Int[np.ndarray, " m"]:
        """Rows of the validation captions of a second batch, beside one of `count` pairs; `draw` is the seed."""
        raise NotImplementedError

    def of_batch(self, texts: Int[Tensor, " b"]) -> Tensor | None:
        """What the objective reads of each pair, network by network, in host memory; None: nothing."""
        return None

    def split(self, network: Any, image: Embedded, text: Embedded, count: int) -> tuple[Embedded, Embedded, Extra]:
        """The first `count` pairs that a network embedded, and what the objective reads of the `further` ones."""
        return image, text, {}

    def scored(self, place: int, sim: Float[Tensor, "b b"]) -> None:
        """See the scores of a batch by the network at this place, without a graph."""

    def before_step(self, model: nn.Module, lr: float, batch: Any, mean_loss: Callable[..., Float[Tensor, ""]]) -> None:
        """Learn ahead of the model's step, of this batch and `batch.second`; the model is as before afterwards.

        `mean_loss` gives the mean loss of a batch, by the objective or by another one.
        """

    def report(self) -> dict[str, float]:
        """Values of an epoch for the history."""
        return {}

    def state(self) -> dict[str, Any]:
        """What the next epochs depend on; empty: nothing."""
        return {}

    def load(self, state: Mapping[str, Any]) -> None:
        """Restore what `state` returned; empty: there was nothing."""
