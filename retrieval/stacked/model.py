"""K models of one architecture as one: the forward code of a single one, its layers replaced by stacked ones."""

import copy
from collections.abc import Mapping

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from grid.encoders import BackboneSettings, CnnSettings, ModelSettings, TransformerSettings
from retrieval import recurrent
from retrieval.image_encoders import Cnn, Features, VectorNorm
from retrieval.model import Vse
from retrieval.pooling import Gpo
from retrieval.stacked import layers
from retrieval.stacked.recurrent import Gru
from retrieval.text_encoders import Transformer

CHANNELS = 16
"""Of convolutions, or a multiple: with others, bits depend on how the channels of several models fill a vector."""


LEAST = 2
"""Places of a stack: a single model has an idle companion, as batches of one take other ways, and round otherwise."""


class StackedVse(Vse):
    """K models: embeddings are (k, b, d), and weights have the names of a single model's, with a first axis.

    All read the same inputs, and draw the same random numbers in training, as models of one seed do.

    Args:
        one: what all of them start as; it is left as it was, but a frozen network of it is shared.
    """

    def __init__(self, one: Vse, count: int) -> None:
        nn.Module.__init__(self)
        self.count = count
        self.frozen = one.frozen
        self.image, self.text = (_stacked(encoder, max(count, LEAST)) for encoder in (one.image, one.text))
        self.train(one.training)

    def embed_images(self, images: Tensor) -> Float[Tensor, "k b d"]:
        return super().embed_images(images)[: self.count]

    def embed_texts(self, ids: Int[Tensor, "b n"], lengths: Int[Tensor, " b"]) -> Float[Tensor, "k b d"]:
        return super().embed_texts(ids, lengths)[: self.count]

    def weights_of(self, place: int) -> dict[str, Tensor]:
        """What `Vse.weights` gives for the model at this place, as copies."""
        return {name: value[place].clone() for name, value in self.weights().items()}

    def load_weights_of(self, place: int, weights: Mapping[str, Tensor]) -> None:
        """Take what a single model, or `weights_of`, gave."""
        own = self.weights()
        with torch.no_grad():
            for name, value in weights.items():
                own[name][place].copy_(value)


def why_not(settings: ModelSettings) -> str:
    """Why such models are not stacked, in words; empty where they are."""
    image, text = settings.image, settings.text
    if isinstance(image, BackboneSettings) and not image.frozen:
        return "its image backbone learns, and fills the device alone"
    if isinstance(image, CnnSettings) and image.channels % CHANNELS:
        return f"its channels are no multiple of {CHANNELS}, so that its roundings would depend on the other models"
    if isinstance(text, TransformerSettings) and not text.frozen:
        return "its text backbone learns, and fills the device alone"
    return ""


def _stacked(encoder: nn.Module, count: int) -> nn.Module:
    """The same encoder with stacked layers; what is frozen in it stays as it is, one for all."""
    backbone = getattr(encoder, "backbone", None)
    made = copy.deepcopy(encoder, {id(backbone): backbone})
    shared = _shared(encoder)
    for name, module in encoder.named_modules():
        if name.startswith("backbone") and backbone is not None:
            continue
        layer = _layer(module, count, shared=name in shared)
        if layer is not None:
            made.set_submodule(name, layer)
    return made


def _layer(one: nn.Module, count: int, *, shared: bool) -> nn.Module | None:
    """The stacked form of one layer; None: it has no weights of its own."""
    match one:
        case nn.Linear():
            return layers.Linear(one, count, shared=shared)
        case nn.Embedding():
            return layers.Embedding(one, count)
        case nn.Dropout() if not shared:
            return layers.Dropout(one)
        case nn.Conv2d():
            return layers.Conv(one, count, shared=shared)
        case VectorNorm():
            return layers.VectorNorm(one, count)
        case nn.BatchNorm2d():
            return layers.ImageNorm(one, count)
        case recurrent.Gru():
            return Gru(one, count, shared=shared)
    assert not list(one.parameters(recurse=False)), f"{type(one).__name__} has no stacked form"
    return None


def _shared(encoder: nn.Module) -> set[str]:
    """The layers of an encoder that read what is the same for all models: the first ones."""
    names = {f"{name}.gru" for name, module in encoder.named_modules() if isinstance(module, Gpo)}
    match encoder:
        case Cnn():
            names |= {"body.0"}
        case Features():
            names |= {"project", "dropout"} | ({"mlp.0"} if encoder.kind == "linear-mlp" else set())
        case Transformer():
            names |= {"project"}
    return names
