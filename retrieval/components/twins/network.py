"""Two networks in one model, as in NCR's co-teaching, trained on the same batches. Their scores are averaged."""

from collections.abc import Mapping
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from goalgrid.retrieval.model import DualEncoder
from goalgrid.retrieval.scorers.sets import Embedded, TokenSets


class Twins(DualEncoder):
    """Two `DualEncoder` networks with different initial weights: the second uses the next seed.

    Its embeddings concatenate those of both networks, so that their product is the mean of both products.
    """

    def __init__(self, *options: Any, seed: int, **named: Any) -> None:
        nn.Module.__init__(self)
        self.pair = nn.ModuleList(DualEncoder(*options, seed=seed + place, **named) for place in range(2))
        self.__dict__["scorer"] = self.networks[0].scorer  # not registered: its weights are the first network's
        self.frozen = tuple(f"pair.{place}.{name}" for place in range(2) for name in self.networks[0].frozen)

    @property
    def networks(self) -> list[DualEncoder]:
        return [network for network in self.pair if isinstance(network, DualEncoder)]

    def embed_images(self, images: Tensor) -> Embedded:
        return _beside([network.embed_images(images) for network in self.networks])

    def embed_texts(self, texts: Tensor, lengths: Int[Tensor, " b"]) -> Embedded:
        return _beside([network.embed_texts(texts, lengths) for network in self.networks])

    def scores(self, image: Embedded, text: Embedded) -> Float[Tensor, "i t"]:
        if isinstance(image, Tensor) and isinstance(text, Tensor):
            return image @ text.T
        halves = zip(self.networks, _halves(image), _halves(text), strict=True)
        return torch.stack([network.scores(*pair) for network, *pair in halves]).mean(0)

    def groups(self) -> dict[str, list[nn.Parameter]]:
        groups = dict[str, list[nn.Parameter]]()
        for network in self.networks:
            for kind, parameters in network.groups().items():
                groups.setdefault(kind, []).extend(parameters)
        return groups

    def parts(self) -> list[str]:
        return [part for network in self.networks for part in network.parts()]

    def hold_image_backbone(self, still: bool) -> None:
        for network in self.networks:
            network.hold_image_backbone(still)

    def start_from(self, weights: Mapping[str, Tensor]) -> None:
        for place, network in enumerate(self.networks):
            before = f"pair.{place}."
            part = {name.removeprefix(before): value for name, value in weights.items() if name.startswith(before)}
            network.start_from(part)


def _beside(parts: list[Embedded]) -> Embedded:
    """Concatenate the vectors of two networks, scaled so that unit vectors give a unit vector."""
    first, second = parts
    if isinstance(first, Tensor) and isinstance(second, Tensor):
        return torch.cat([first, second], dim=1) / 2**0.5
    assert isinstance(first, TokenSets)
    assert isinstance(second, TokenSets)
    wholes = [part.whole for part in (first, second) if part.whole is not None]
    vectors = torch.cat([first.vectors, second.vectors], dim=2)
    return TokenSets(vectors, first.sizes, torch.cat(wholes, dim=1) if wholes else None)


def _halves(sets: Embedded) -> list[TokenSets]:
    assert isinstance(sets, TokenSets)
    wholes = [None, None] if sets.whole is None else sets.whole.chunk(2, dim=1)
    halves = zip(sets.vectors.chunk(2, dim=2), wholes, strict=True)
    return [TokenSets(vectors, sets.sizes, whole) for vectors, whole in halves]
