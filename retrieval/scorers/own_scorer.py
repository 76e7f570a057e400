"""Scorers of the user's own, checked for the shape of what they give."""

from functools import partial

import torch
from jaxtyping import Float
from torch import Tensor, nn

from goalgrid.grid.settings.own_parts import check_gradient, check_shape, own_parts
from goalgrid.grid.settings.scorers import OwnScorerSettings
from goalgrid.retrieval.scorers.cross_attention import SetScorer
from goalgrid.retrieval.scorers.sets import Sets


class OwnScorer(SetScorer):
    """The user's function or module. A score may depend on the whole batch, so all scores are computed with a graph."""

    by_pair = False

    def __init__(self, settings: OwnScorerSettings, regions: int, dim: int) -> None:
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
