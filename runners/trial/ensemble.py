"""Ensembles: the mean of the members' scores, evaluated like the scores of one model, without training."""

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
    """Images or captions, as embedded by each member."""

    parts: tuple[Rows, ...]

    def __len__(self) -> int:
        return len(self.parts[0])

    def __getitem__(self, rows: slice | Tensor) -> "Joint":
        return Joint(tuple(part[rows] for part in self.parts))

    @property
    def device(self) -> torch.device:
        return self.parts[0].device


class Ensemble:
    """The mean of the scores of several models. Calls `beat` after each step of the evaluation."""

    def __init__(self, members: Sequence[LoadedModel], beat: Callable[[], None] = lambda: None) -> None:
        self.members, self.beat = members, beat

    @classmethod
    def load(cls, folders: Sequence[TrialFolder], machine: Machine, beat: Callable[[], None]) -> "Ensemble":
        """Load an ensemble of finished trials.

        Raises DataError if one was trained on other data, UserError if one cannot be loaded.
        """
        members = []
        for folder in folders:
            member = LoadedModel.of_trial(folder, machine)
            if member.settings.model.rerank_k:
                raise UserError(
                    f"{folder.trial_id} has a second stage, which scores only some pairs, so no mean can be computed. "
                    "Remove it from the ensemble."
                )
            members.append(member)
            beat()
        return cls(members, beat)

    def by_protocols(self, names: Sequence[str]) -> dict[str, evaluation.Ranks]:
        """Evaluate on the test split by several protocols; embeds the split once."""
        image, text, owners = self._embedded("test")
        return {name: self._ranked(image, text, owners, protocol(name).fold) for name in names}

    def evaluate(self, split_name: str) -> evaluation.Ranks:
        """Rank a whole split. On the validation split, first rank each member alone, to verify it against its record.

        Raises DataError if the members read different pairs, UserError if a member's metrics differ from its record.
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
"""A caption, identified by the row of its image and its words, which features and pictures have in common."""


def _items(member: LoadedModel, split_name: str) -> list[Item]:
    """Return the captions of the split that the member is evaluated on, in order."""
    split, images = member.inputs.pairs.splits[split_name], member.settings.dataset.val_images
    _, rows = split.first(images if split_name == "val" else None)
    return [(int(split.image_of_text[row]), tuple(words(split.captions[row]))) for row in rows]


def _check_same(split_name: str, first: tuple[str, list[Item]], second: tuple[str, list[Item]]) -> None:
    """Raise a DataError if two members, given as (recipe, captions), read different captions or another order."""
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
        f"its members read different images or captions of the {split_name} split, or in a different order: {differ}. "
        "Their scores cannot be averaged. Features and pictures need the same captions in the same order: write the "
        "features in the order of the annotations, or keep only id_mapping.json as annotations next to the features."
    )
