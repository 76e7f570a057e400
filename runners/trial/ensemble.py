"""An ensemble: the mean of its members' scores, evaluated as the scores of a model are. It trains nothing."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from grid.protocols import protocol
from grid.store.home import TrialFolder
from retrieval import evaluation
from retrieval.evaluation import Rows
from retrieval.splits.pairs import DataError
from runners.training.embedding import TILE, embedded, scored
from runners.training.machine import Machine
from runners.trial.loaded_model import LoadedModel


@dataclass(frozen=True, eq=False)
class Joint:
    """Images or captions, as each member embeds them."""

    parts: tuple[Rows, ...]

    def __len__(self) -> int:
        return len(self.parts[0])

    def __getitem__(self, rows: slice | Tensor) -> "Joint":
        return Joint(tuple(part[rows] for part in self.parts))

    @property
    def device(self) -> torch.device:
        return self.parts[0].device


class Ensemble:
    """The mean of the scores of several models.

    Args:
        beat: called after each step of the evaluation.
    """

    def __init__(self, members: Sequence[LoadedModel], beat: Callable[[], None] = lambda: None) -> None:
        self.members, self.beat = members, beat

    @classmethod
    def load(cls, folders: Sequence[TrialFolder], machine: Machine, beat: Callable[[], None]) -> "Ensemble":
        """The ensemble of these finished trials.

        Raises:
            DataError: a member was trained on other data than are here now.
            UserError: a member's weights cannot be read, or are not kept.
        """
        members = []
        for folder in folders:
            members.append(LoadedModel.of_trial(folder, machine))
            beat()
        return cls(members, beat)

    def by_protocols(self, names: Sequence[str]) -> dict[str, evaluation.Ranks]:
        """Evaluate on the test split by several protocols, from one set of embeddings."""
        image, text, owners = self._embedded("test")
        return {name: self._ranked(image, text, owners, protocol(name).fold) for name in names}

    def evaluate(self, split_name: str) -> evaluation.Ranks:
        """Ranks of a whole split.

        Raises:
            DataError: the members read different pairs.
        """
        return self._ranked(*self._embedded(split_name))

    def scores(self, image: Joint, text: Joint) -> Float[Tensor, "i t"]:
        """The mean of the members' scores, as published: no score is scaled."""
        parts = zip(self.members, image.parts, text.parts, strict=True)
        return torch.stack([scored(member.model, *rows) for member, *rows in parts]).mean(dim=0)

    def _embedded(self, split_name: str) -> tuple[Joint, Joint, Int[np.ndarray, " t"]]:
        images, texts, owners = list[Rows](), list[Rows](), list[Int[np.ndarray, " t"]]()
        for member in self.members:
            image, text, owner = embedded(member.model, member.settings, member.inputs, split_name)
            images.append(image)
            texts.append(text)
            owners.append(owner)
            self.beat()
        if not all(np.array_equal(owners[0], owner) for owner in owners):
            counts = ", ".join(f"{len(image):,} and {len(text):,}" for image, text in zip(images, texts, strict=True))
            raise DataError(f"its members read different images and captions of the {split_name} split: {counts}")
        return Joint(tuple(images)), Joint(tuple(texts)), owners[0]

    def _ranked(
        self, image: Joint, text: Joint, owners: Int[np.ndarray, " t"], fold: int | None = None
    ) -> evaluation.Ranks:
        with torch.inference_mode():
            ranks = evaluation.rank_in_folds(image, text, owners, fold, self.scores, chunk=TILE)
        self.beat()
        return ranks
