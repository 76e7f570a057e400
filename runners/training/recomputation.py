"""Activation recomputation, which saves memory for time: backward recomputes what the forward pass drops."""

from collections.abc import Iterable, Sequence
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.utils.checkpoint import checkpoint

from goalgrid.grid.errors import UserError
from goalgrid.grid.settings import TrialSettings
from goalgrid.retrieval.encoders.reasoning import NormOfPresent
from goalgrid.retrieval.model import DualEncoder, EmbeddedBatch
from goalgrid.retrieval.scorers.sets import Embedded, TokenSets

BLOCKS = {
    "GradientCheckpointingLayer",  # base of the layers of transformers' transformers
    *("ResNetBasicLayer", "ResNetBottleNeckLayer", "RegNetXLayer", "RegNetYLayer"),  # of transformers
    "ResidualLayer",  # of ResNets with random weights
    *("BasicBlock", "Bottleneck"),  # of timm's ResNets
    *("SwinBlock", "BertLayer"),  # of X-VLM
}
"""Class names of the blocks that networks are stacked from."""


def blocks(model: nn.Module) -> list[nn.Module]:
    return [part for part in model.modules() if BLOCKS & {kind.__name__ for kind in type(part).__mro__}]


def check(trials: Iterable[tuple[TrialSettings, nn.Module]]) -> None:
    """Check that models can recompute activations; raise a UserError that lists those whose batch norms prevent it."""
    if problems := dict.fromkeys(filter(None, (_problem(settings, model) for settings, model in trials))):
        raise UserError("\n".join([*problems, "Use [[where]] to set it only for other recipes."]))


def _problem(settings: TrialSettings, model: nn.Module) -> str:
    """Return why batch norms would see a batch in parts or twice, with the setting that helps; empty if they do not."""
    train, image = settings.train, settings.model.image
    asked = "train.micro_batch" if train.micro_batch else "train.checkpoint_activations"
    stacks = [model] if train.micro_batch else blocks(model) if train.checkpoint_activations else []
    norms = [part for stack in stacks for part in stack.modules() if isinstance(part, _BatchNorm | NormOfPresent)]
    if not (count := sum(norm.training for norm in norms)):
        return ""
    problem = (
        f"{asked} with {settings.recipe}: batch norms of its model ({count}) must see the whole batch once per step."
    )
    if not getattr(image, "frozen", True) and not getattr(image, "norm_eval", True):
        return f"{problem} model.image.norm_eval = true freezes the statistics of its backbone."
    return problem


def checkpoint_blocks(model: nn.Module) -> None:
    """Let each block store only its input, and recompute the rest in the backward pass with the same dropout."""
    for block in blocks(model):
        setattr(block, "forward", partial(checkpoint, block.forward, use_reentrant=False))  # noqa: B010


def embedded_in_parts(
    network: DualEncoder, images: Tensor, texts: Tensor, lengths: Tensor, size: int | None
) -> EmbeddedBatch:
    """Embed the batch in parts of `size` pairs, so that only embeddings stay in memory; None: all at once.

    GradCache, Gao et al., RepL4NLP 2021: after the backward pass of the objective, each part, in reverse order, is
    embedded again with the same dropout, and the gradient of its embeddings is backpropagated.
    """
    if size is None or size >= len(images):
        return network.embed_batch(images, texts, lengths)
    parts = zip(images.split(size), texts.split(size), lengths.split(size), strict=True)
    embedded = [checkpoint(network.embed_batch, *part, use_reentrant=False) for part in parts]
    image, text, seen = zip(*embedded, strict=True)
    return _joined(image), _joined(text), tuple(map(torch.cat, zip(*seen, strict=True)))


def _joined(parts: Sequence[Embedded]) -> Embedded:
    vectors = [part for part in parts if isinstance(part, Tensor)]
    return torch.cat(vectors) if vectors else TokenSets.joined([part for part in parts if isinstance(part, TokenSets)])
