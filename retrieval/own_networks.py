"""User-defined encoders and scorers: built from their settings, with checks of the outputs' shapes."""

from functools import partial
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from goalgrid.grid.errors import UserError
from goalgrid.grid.global_state import contain_calls, contained
from goalgrid.grid.settings.image_encoders import OwnImageSettings
from goalgrid.grid.settings.scorers import OwnScorerSettings
from goalgrid.grid.settings.text_encoders import OwnTextSettings
from goalgrid.grid.settings.user_modules import check_gradient, check_shape
from goalgrid.retrieval.encoders.pretrained import Places
from goalgrid.retrieval.scorers.cross_attention import SetScorer
from goalgrid.retrieval.scorers.sets import TokenSets

DIMENSIONS = {"pictures": 3, "features": 1, "regions": 2}
"""Number of dimensions of an image, by what an image encoder reads."""


def image_encoder(settings: OwnImageSettings, shape: tuple[int, ...], dim: int, places: Places) -> nn.Module:
    """Build the user-defined image encoder, from (b, *shape) to (b, dim).

    Raises UserError if it reads images of another kind than these.
    """
    chosen = settings.user_module
    if len(shape) != DIMENSIONS[chosen.on]:
        known = {1: "one vector per image", 2: "several vectors per image", 3: "pixels"}
        raise UserError(
            f"image encoder {settings.name!r} is declared with on = {chosen.on!r}, but an image of these data has the "
            f"shape {shape}: {known.get(len(shape), 'more')}. Change `on`, or use other data."
        )
    return _checked(_made(chosen.network, shape, dim, **settings.parameters), settings.name, dim)


def text_encoder(settings: OwnTextSettings, words: int, dim: int, places: Places) -> nn.Module:
    """Build the user-defined text encoder, from ids (b, n) below `words` and lengths (b) to (b, dim)."""
    network = settings.user_module.network
    return _checked(_made(network, words, dim, **settings.parameters), settings.name, dim)


def _made(network: type[nn.Module], *of: Any, **parameters: Any) -> nn.Module:
    with contained(network):
        return network(*of, **parameters)


def _checked(network: nn.Module, name: str, dim: int) -> nn.Module:
    """Add checks to a network that raise a UserError if its output is not (b, dim) or carries no gradient."""
    contain_calls(network, type(network))

    def check(_: nn.Module, inputs: tuple[Any, ...], output: Any) -> None:
        count, part = len(inputs[0]), f"encoder {name!r}"
        check_shape(part, type(network), output, f"a batch of {count}", (count, dim))
        if torch.is_grad_enabled() and any(weight.requires_grad for weight in network.parameters()):
            check_gradient(part, type(network), f"a batch of {count}", output)

    network.register_forward_hook(check)
    return network


class OwnScorer(SetScorer):
    """A user-defined scorer. As a score may depend on the whole batch, all scores are computed with gradients."""

    by_pair = False

    def __init__(self, settings: OwnScorerSettings, regions: int, dim: int) -> None:
        super().__init__()
        network, parameters = settings.user_module.network, settings.parameters
        self.name, self.defined = settings.name, network
        self.score = _made(network, dim, **parameters) if isinstance(network, type) else partial(network, **parameters)

    def forward(self, images: TokenSets, texts: TokenSets) -> Float[Tensor, "i t"]:
        """Return the scores, in float32; raises WrongReturn if the shape is wrong or they carry no gradient."""
        images, texts = images.full(), texts.full()
        parts = [part for sets in (images, texts) for part in (sets.vectors, sets.sizes_beside)]
        with contained(self.defined):
            scores = self.score(*parts)
        part, of = f"scorer {self.name!r}", f"{len(images)} images and {len(texts)} captions"
        check_shape(part, self.defined, scores, of, (len(images), len(texts)))
        if parts[0].requires_grad and torch.is_grad_enabled():
            check_gradient(part, self.defined, of, scores)
        return scores
