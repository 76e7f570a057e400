"""Embed and rank a split: single vectors all at once, sets of vectors tile by tile."""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from goalgrid.grid.errors import UserError, counted
from goalgrid.grid.protocols import protocol
from goalgrid.grid.settings import TrialSettings
from goalgrid.objectives.objective import Objective
from goalgrid.retrieval import evaluation
from goalgrid.retrieval.evaluation import Rows
from goalgrid.retrieval.model import DualEncoder
from goalgrid.retrieval.prefetch import ahead
from goalgrid.retrieval.scorers.sets import TokenSets
from goalgrid.retrieval.splits.pairs import Split
from goalgrid.runners.training.exchange import ALONE, ProcessGroup
from goalgrid.runners.training.inputs import Inputs
from goalgrid.runners.training.machine import precision, set_tf32
from goalgrid.runners.training.training_methods import selecting

EMBED_BATCH = 512
"""Evaluation batch size for feature vectors and captions; pixels use the batch size of training."""

TILE = {"cpu": 64, "cuda": 256}
"""Number of images whose captions a set scorer scores at a time."""


class NonFinite(UserError):
    """A loss, gradient or score is not finite: the training diverged, or the model outputs NaN."""


@dataclass(frozen=True, eq=False)
class Captions:
    """Captions of a split, embedded on demand: the word vectors of all captions would not fit in memory."""

    model: DualEncoder
    settings: TrialSettings
    inputs: Inputs
    split_name: str
    rows: Int[Tensor, " t"]

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, rows: slice | Tensor) -> "Captions":
        part = self.rows[rows if isinstance(rows, slice) else rows.cpu()]
        return Captions(self.model, self.settings, self.inputs, self.split_name, part)

    @property
    def device(self) -> torch.device:
        return self.inputs.device

    @cached_property
    def sets(self) -> TokenSets:
        ids, lengths = self.inputs.tokens[self.split_name].gather(self.rows)
        with precision(self.settings, self.device):
            embedded = self.model.embed_texts(ids.to(self.device), lengths)
        assert isinstance(embedded, TokenSets)
        return embedded


def embedded(
    model: DualEncoder, settings: TrialSettings, inputs: Inputs, split_name: str, group: ProcessGroup = ALONE
) -> tuple[Rows, Rows, Int[np.ndarray, " t"]]:
    """Embed a split; return the embeddings of images and captions, and the image that each caption describes.

    The validation split is cut to the images that select the checkpoint. Each rank embeds some of the batches, so the
    embeddings equal those of a single process. With a set scorer, every rank embeds everything.
    """
    split: Split = getattr(inputs.pairs, split_name)
    images, texts = split.first(selecting(settings, inputs.pairs) if split_name == "val" else None)
    device, tokens = inputs.device, inputs.tokens[split_name]
    size = EMBED_BATCH if len(split.images.shape) < 3 else settings.train.batch_size
    model.eval()
    set_tf32(settings.train)

    def embed_images(batches: Sequence[Tensor]) -> list[Any]:
        read = ahead(lambda rows: split.images.gather(rows.numpy()), batches)
        return [model.embed_images(batch.to(device)) for batch in read]

    def embed_texts(batches: Sequence[Tensor]) -> list[Any]:
        read = (tokens.gather(rows) for rows in batches)
        return [model.embed_texts(ids.to(device), lengths) for ids, lengths in read]

    with torch.no_grad(), precision(settings, device):
        parts = torch.arange(images).split(size)
        if model.scorer is not None:
            captions = Captions(model, settings, inputs, split_name, torch.from_numpy(texts))
            return TokenSets.joined(embed_images(parts)), captions, split.image_of_text[texts]
        image = _shared(group, parts, embed_images)
        text = _shared(group, torch.from_numpy(texts).split(EMBED_BATCH), embed_texts)
        return image, text, split.image_of_text[texts]


def _shared(
    group: ProcessGroup, batches: Sequence[Tensor], embed: Callable[[Sequence[Tensor]], list[Tensor]]
) -> Tensor:
    """Return the embeddings of all batches; each rank embeds some of them and gathers the rest."""
    if group.size == 1:
        return torch.cat(embed(batches))
    place, sizes = group.part(len(batches)), [len(batch) for batch in batches]
    rows = slice(sum(sizes[: place.start]), sum(sizes[: place.stop]))
    part = torch.cat(embed(batches[place] or batches[:1]))  # where there are fewer batches than ranks, for its shape
    whole = part.new_zeros(sum(sizes), *part.shape[1:])
    whole[rows] = part[: rows.stop - rows.start]
    group.sum(whole)
    return whole


def ranked(
    model: DualEncoder, image: Rows, text: Rows, image_of_text: Int[np.ndarray, " t"], fold: int | None = None
) -> evaluation.Ranks:
    """Rank the embeddings of `embedded` by the model's scorer, in folds of `fold` images (None: all at once).

    Raises NonFinite if a score is NaN, which cannot be ranked.
    """
    options: dict[str, Any] = {}
    if scorer := model.scorer:
        options = {"chunk": TILE[image.device.type], "mean_places": scorer.mean_places, "score": partial(scored, model)}
    with torch.no_grad():
        ranks = evaluation.rank_in_folds(image, text, image_of_text, fold, **options)
    if any(math.isnan(value) for part in ranks.folds or (ranks,) for value in part.similarities.values()):
        sides = [(side, rows) for side, rows in (("image", image), ("caption", text)) if isinstance(rows, Tensor)]
        spoilt = [f"{int(rows.isnan().any(1).sum()):,} of {counted(len(rows), side)}" for side, rows in sides]
        of = f", because the embeddings of {' and '.join(spoilt)} are NaN" if spoilt else ""
        raise NonFinite(f"scores of the model are NaN{of}. Check the outputs of its encoders after eval().")
    return ranks


def ranks_of_test(
    model: DualEncoder,
    settings: TrialSettings,
    inputs: Inputs,
    protocols: Sequence[str | None],
    beat: Callable[[], None] = lambda: None,
) -> tuple[tuple[Rows, Rows, Int[np.ndarray, " t"]], dict[Any, evaluation.Ranks]]:
    """Return the embedded test split, and its ranks by each protocol (None: all at once).

    Models with a second stage rank again with it.
    """
    test = embedded(model, settings, inputs, "test")
    folds = [protocol(name).fold if name else None for name in protocols]
    ranks = [ranked(model, *test, fold) for fold in folds]
    if settings.model.rerank_k:
        of_part: Any = model
        sizes = settings.train.batch_size, EMBED_BATCH
        with torch.no_grad(), precision(settings, inputs.device):
            ranks = of_part.reranked(ranks, test, folds, inputs.pairs.test, inputs.tokens["test"], sizes, beat)
    return test, dict(zip(protocols, ranks, strict=True))


def objective_value(
    model: DualEncoder, objective: Objective, size: int, image: Rows, text: Rows, image_of_text: Int[np.ndarray, " t"]
) -> float:
    """Return the mean loss of the embeddings of `embedded` over `batches_of` them; NaN if there is no batch."""
    values, vectors = list[Tensor](), isinstance(image, Tensor) and isinstance(text, Tensor)
    objective.eval()
    with torch.no_grad():
        for batch, *part in batches_of(size, image, text, image_of_text):
            value = objective(*part, batch) if vectors else objective.from_similarity(scored(model, *part), batch)
            values.append(value)
    return float(torch.stack(values).double().mean()) if values else math.nan


def batches_of(
    size: int, image: Rows, text: Rows, image_of_text: Int[np.ndarray, " t"]
) -> Iterator[tuple[Int[Tensor, " b"], Any, Any]]:
    """Yield batches of `size` images in the split's order: their rows, the images and their first captions.

    A smaller last batch is dropped, unless it is the only one; a single image does not make a batch.
    """
    owners, captions = (torch.from_numpy(rows) for rows in np.unique(image_of_text, return_index=True))
    for start in range(0, max(1, len(owners) - size + 1) if len(owners) > 1 else 0, size):
        batch = owners[start : start + size].to(image.device)
        yield batch, image[batch], text[captions[start : start + size].to(text.device)]


def scored(model: DualEncoder, image: Rows, text: Rows) -> Float[Tensor, "i t"]:
    """Return the model's scores of the embeddings of `embedded`."""
    texts: Any = text.sets if isinstance(text, Captions) else text
    images: Any = image
    return model.scores(images, texts)
