"""How a model turns what it embedded into scores of images by texts: scorers of sets; the product needs no module."""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from goalgrid.grid.settings import parts
from goalgrid.grid.settings.own_parts import check_gradient, check_shape, own_parts
from goalgrid.grid.settings.scorers import OwnScorerSettings, ScorerSettings
from goalgrid.retrieval.scorers.cross_attention import Bfan, Scan, SetScorer
from goalgrid.retrieval.scorers.sets import Sets
from goalgrid.retrieval.scorers.similarity import Saf, Sgr


class OwnScorer(SetScorer):
    """The user's function or module. A score may depend on the whole batch, so all scores are computed with a graph."""

    by_pair = False

    def __init__(self, settings: OwnScorerSettings, dim: int) -> None:
        super().__init__()
        network, parameters = own_parts[settings.of][settings.name].network, settings.parameters
        self.name, self.defined = settings.name, network
        self.score = network(dim, **parameters) if isinstance(network, type) else partial(network, **parameters)

    def pair_weights(self) -> list[nn.Parameter]:
        return list(self.parameters())

    def forward(self, images: Sets, texts: Sets) -> Float[Tensor, "i t"]:
        """The scores, in float32; WrongReturn: the user's scorer returns something else, or what cannot learn."""
        images, texts = images.full(), texts.full()
        parts = [part for sets in (images, texts) for part in (sets.vectors, sets.sizes_beside)]
        scores = self.score(*parts)
        part, of = f"scorer {self.name!r}", f"{len(images)} images and {len(texts)} captions"
        check_shape(part, self.defined, scores, of, (len(images), len(texts)))
        if parts[0].requires_grad and torch.is_grad_enabled():
            check_gradient(part, self.defined, of, scores)
        return scores


SCORERS: dict[str, Callable[[Any, int, int], SetScorer]] = {
    "scan": lambda settings, regions, dim: Scan(settings),
    "bfan": lambda settings, regions, dim: Bfan(settings),
    "sgr": Sgr,
    "saf": Saf,
    "own": lambda settings, regions, dim: OwnScorer(settings, dim),
}
"""Each scorer of sets by the kind in `grid/settings/scorers.py`, for so many regions of `dim` values."""


def scorer(settings: ScorerSettings, regions: int, dim: int) -> SetScorer:
    if settings.network:
        return parts.loaded(settings.network)(settings, regions, dim)
    given: Any = settings
    return SCORERS[given.kind](settings, regions, dim)
