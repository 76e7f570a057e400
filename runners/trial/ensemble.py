"""An ensemble: the mean of its members' scores, evaluated like the scores of a model. It trains nothing."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from goalgrid.grid.errors import UserError
from goalgrid.grid.protocols import protocol
from goalgrid.grid.store.home import TrialFolder
from goalgrid.retrieval import evaluation
from goalgrid.retrieval.evaluation import Rows
from goalgrid.retrieval.splits.pairs import DataError
from goalgrid.retrieval.words.splitting import words
from goalgrid.runners.training.embedding import TILE, embedded, ranked, scored
from goalgrid.runners.training.machine import Machine
from goalgrid.runners.trial.loaded_model import LoadedModel


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
    """The mean of the scores of several models; `beat` is called after each step of the evaluation."""

    def __init__(self, members: Sequence[LoadedModel], beat: Callable[[], None] = lambda: None) -> None:
        self.members, self.beat = members, beat

    @classmethod
    def load(cls, folders: Sequence[TrialFolder], machine: Machine, beat: Callable[[], None]) -> "Ensemble":
        """Load an ensemble of finished trials; DataError: one read other data; UserError: one cannot be loaded."""
        members = []
        for folder in folders:
            member = LoadedModel.of_trial(folder, machine)
            if member.settings.model.rerank_k:
                raise UserError(
                    f"{folder.trial_id} has a second stage, which scores few pairs: there is no mean of all scores. "
                    "Leave it out of the ensemble."
                )
            members.append(member)
            beat()
        return cls(members, beat)

    def by_protocols(self, names: Sequence[str]) -> dict[str, evaluation.Ranks]:
        """Evaluate on the test split by several protocols, from one set of embeddings."""
        image, text, owners = self._embedded("test")
        return {name: self._ranked(image, text, owners, protocol(name).fold) for name in names}

    def evaluate(self, split_name: str) -> evaluation.Ranks:
        """Rank a whole split. On the validation split, which is small, each member is first ranked alone.

        DataError: the members read different pairs. UserError: a member's numbers are not those of its record.
        """
        image, text, owners = self._embedded(split_name)
        for member, images, texts in zip(self.members, image.parts, text.parts, strict=True):
            if split_name == "val" and member.trial:
                member.check_numbers(member.trial.validation, ranked(member.model, images, texts, owners))
                self.beat()
        return self._ranked(image, text, owners)

    def scores(self, image: Joint, text: Joint) -> Float[Tensor, "i t"]:
        """Return the mean of the members' scores, as published: no score is scaled."""
        parts = zip(self.members, image.parts, text.parts, strict=True)
        return torch.stack([scored(member.model, *rows) for member, *rows in parts]).mean(dim=0)

    def _embedded(self, split_name: str) -> tuple[Joint, Joint, Int[np.ndarray, " t"]]:
        items = [_items(member, split_name) for member in self.members]
        for member, captions in zip(self.members[1:], items[1:], strict=True):
            _check_same(split_name, (self.members[0].settings.recipe, items[0]), (member.settings.recipe, captions))
        parts = []
        for member in self.members:
            parts.append(embedded(member.model, member.settings, member.inputs, split_name))
            self.beat()
        images, texts, owners = zip(*parts, strict=True)
        return Joint(images), Joint(texts), owners[0]

    def _ranked(
        self, image: Joint, text: Joint, owners: Int[np.ndarray, " t"], fold: int | None = None
    ) -> evaluation.Ranks:
        mean_places = any(getattr(member.model.scorer, "mean_places", False) for member in self.members)
        options = {"score": self.scores, "chunk": TILE[image.device.type], "mean_places": mean_places}
        with torch.inference_mode():
            ranks = evaluation.rank_in_folds(image, text, owners, fold, **options)
        self.beat()
        return ranks


Item = tuple[int, tuple[str, ...]]
"""A caption, known by the row of its image and its words: features and pictures share no other name."""


def _items(member: LoadedModel, split_name: str) -> list[Item]:
    """The captions of the split on which the member is evaluated, in their order."""
    split, images = member.inputs.pairs.splits[split_name], member.settings.dataset.val_images
    _, rows = split.first(images if split_name == "val" else None)
    return [(int(split.image_of_text[row]), tuple(words(split.captions[row]))) for row in rows]


def _check_same(split_name: str, first: tuple[str, list[Item]], second: tuple[str, list[Item]]) -> None:
    """Raise a DataError if two members, each a recipe with its captions, do not read the same in the same order."""
    (one, ours), (other, theirs) = first, second
    if ours == theirs:
        return
    place = next((place for place, pair in enumerate(zip(ours, theirs, strict=False)) if pair[0] != pair[1]), None)
    if place is None:
        differ = f"{len(ours):,} captions for {one}, {len(theirs):,} for {other}"
    else:
        captions = [f"{' '.join(items[place][1])!r} of image {items[place][0] + 1}" for items in (ours, theirs)]
        differ = f"caption {place + 1} is {captions[0]} for {one}, and {captions[1]} for {other}"
    raise DataError(
        f"its members read other images and captions of the {split_name} split, or in another order: {differ}. Their "
        "scores cannot be averaged. Features and pictures need the same captions in the same order: write the features "
        "in the order of the annotations, or have id_mapping.json next to the features as the only annotations."
    )
