"""The check of a user's own encoders: shape, the same vector in any batch, gradient, and weights of a checkpoint."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import normalize

from goalgrid.grid.settings.image_encoders import OwnImageSettings
from goalgrid.grid.settings.own_parts import own_parts
from goalgrid.grid.settings.text_encoders import OwnTextSettings
from goalgrid.retrieval.encoders.own_encoders import image_encoder, text_encoder

DIM = 12
"""Of the joint space."""
SEED = 20230107
IMAGES: dict[str, tuple[int, ...]] = {"pictures": (3, 64, 64), "features": (48,), "regions": (6, 48)}
"""The shape of an image that is checked, by what an encoder reads."""
VOCABULARY = 40
LENGTHS = (9, 5, 2, 1)
"""Words of the captions that are checked."""
ALIKE = 1e-4
"""Tolerance between vectors of the same input, relative to the largest value: float32 sums in another order."""


class Broken(Exception):
    """A check failed; the message says how."""


def shape(name: str) -> str:
    """A vector of the joint space for each image or caption, finite."""
    vectors = _encoder(name)(*_read(name))  # the encoder itself says so when the shape is another
    if not vectors.isfinite().all():
        raise Broken("a value is not finite")
    return f"({len(LENGTHS)}, {DIM}) for {len(LENGTHS)} inputs and a joint space of {DIM} values"


@torch.no_grad()
def batch(name: str) -> str:
    """In evaluation, an input has the same vector alone, in a batch, in another order, and at a second call."""
    encoder, read = _encoder(name).eval(), _read(name)
    whole = encoder(*read)
    alone = [_alone(read, place) for place in range(len(LENGTHS))]
    others = {
        "at the second call": encoder(*read),
        "in another order of the batch": encoder(*(part.flip(0) for part in read)).flip(0),
        "alone": torch.cat([encoder(*one) for one in alone]),
    }
    for what, vectors in others.items():
        off = float((vectors - whole).abs().max() / whole.abs().max())
        if not off <= ALIKE:
            beside = " Padding behind a caption's end must not count" * (what == "alone" and len(read) == 2)
            raise Broken(f"{what}, an input has another vector: off by {off:.1e} of the largest value.{beside}")
    return "a vector does not depend on the batch"


def gradient(name: str) -> str:
    """Every parameter that learns gets a finite gradient."""
    encoder = _encoder(name)
    vectors = normalize(encoder(*_read(name)).float(), dim=-1)
    (vectors * torch.randn(vectors.shape, generator=torch.Generator().manual_seed(SEED))).sum().backward()
    if not (learning := learning_in(encoder)):
        raise Broken("it has no parameter that learns")
    return f"finite for all {learning} parameters"


def learning_in(module: torch.nn.Module) -> int:
    """The number of parameters that learn, once a gradient has flowed.

    Raises:
        Broken: a parameter got no gradient, or a gradient that is not finite.
    """
    learning = {name: weight.grad for name, weight in module.named_parameters() if weight.requires_grad}
    for name, grad in learning.items():
        if grad is None:
            raise Broken(f"{name} gets no gradient. A part that forward does not use, or detaches, is the usual cause")
        if not grad.isfinite().all():
            raise Broken(f"the gradient of {name} is not finite")
    return len(learning)


def weights(name: str) -> str:
    """Another encoder that takes the weights gives the same vectors, as after a checkpoint."""
    return check_restored(_encoder(name), _encoder(name, SEED + 1), _read(name), "vectors")


@torch.no_grad()
def check_restored(first: torch.nn.Module, other: torch.nn.Module, read: Sequence[Any], what: str) -> str:
    """Check that another module with the weights of the first gives the same output.

    Raises:
        Broken: it gives another output.
    """
    first(*read)  # in training, so that running statistics are no longer those of the start
    other.load_state_dict(first.state_dict())
    if not torch.equal(first.eval()(*read), other.eval()(*read)):
        raise Broken(
            f"with the weights of a checkpoint it gives other {what}. State outside state_dict is the usual cause"
        )
    return f"a checkpoint holds all that its {what} depend on"


OF_ENCODERS: dict[str, Callable[[str], str]] = {
    "shape": shape,
    "batch": batch,
    "gradient": gradient,
    "weights": weights,
}


def _encoder(name: str, seed: int = SEED) -> torch.nn.Module:
    """The encoder, with the default of each parameter."""
    torch.manual_seed(seed)
    named = {"encoder": "own", "name": name}
    if name in own_parts["image encoder"]:
        shape = IMAGES[own_parts["image encoder"][name].on]
        return image_encoder(OwnImageSettings.model_validate(named), shape, DIM)
    return text_encoder(OwnTextSettings.model_validate(named), VOCABULARY, DIM)


def _read(name: str) -> tuple[Tensor, ...]:
    """The encoder's input: images; or ids of captions, 0 behind their ends, and lengths."""
    random = torch.Generator().manual_seed(SEED)
    if name not in own_parts["image encoder"]:
        lengths = torch.tensor(LENGTHS)
        ids = torch.randint(1, VOCABULARY, (len(LENGTHS), max(LENGTHS)), generator=random)
        return ids * (torch.arange(max(LENGTHS)) < lengths[:, None]), lengths
    on = own_parts["image encoder"][name].on
    shape = len(LENGTHS), *IMAGES[on]
    if on == "pictures":
        return (torch.randint(0, 256, shape, generator=random, dtype=torch.uint8),)
    return (torch.randn(shape, generator=random),)


def _alone(read: tuple[Tensor, ...], place: int) -> tuple[Tensor, ...]:
    """An image, or a caption without padding, in a batch by itself."""
    one = tuple(part[place : place + 1] for part in read)
    return one if len(one) == 1 else (one[0][:, : int(one[1])], one[1])
