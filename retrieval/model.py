"""The dual encoder: two encoders into a joint space, with similarities by dot product or by a set scorer."""

from collections.abc import Mapping
from typing import Any, ClassVar, Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from goalgrid.grid.errors import UserError
from goalgrid.grid.settings import components
from goalgrid.grid.settings.model import ModelSettings
from goalgrid.retrieval.encoders import pretrained
from goalgrid.retrieval.scorers.cross_attention import SetScorer
from goalgrid.retrieval.scorers.sets import Embedded, TokenSets, gathered
from goalgrid.retrieval.unit_vectors import unit

BACKBONES = {"image": "image.backbone.", "text": "text.backbone."}
"""Prefixes of the weights of the pretrained networks, by modality."""
EmbeddedBatch = tuple[Any, Any, tuple[Tensor, ...]]
"""Embedded images and captions of a batch, and further tensors that `further_losses` reads."""


class DualEncoder(nn.Module):
    """Dual encoder of images and captions (visual-semantic embedding).

    Args:
        image_shape: shape of one input image: pixels or features.
        words: vocabulary size, or the width of the features if captions are features.
        seed: seed of the weight initialisation; the global random state is not changed.
        places: folders of pretrained weights, by name.
    """

    scorer: SetScorer | None
    """Set scorer; None for the dot product of unit vectors."""
    beside: ClassVar[Literal["sum", "mean"]] = "mean"
    """Reduction of the objective's loss over pairs that `further_losses` are to be added to."""

    def __init__(
        self,
        settings: ModelSettings,
        image_shape: tuple[int, ...],
        words: int,
        *,
        seed: int,
        places: pretrained.Places = {},  # noqa: B006
    ) -> None:
        super().__init__()
        settings.check_image(image_shape)
        image, text = settings.image, settings.text
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(seed)  # of the processor alone: it is there that a model is built
            self.image = components.loaded(image.network)(image, image_shape, settings.dim, places)
            self.text = components.loaded(text.network)(text, words, settings.dim, places)
            self.scorer = None
            if settings.of_sets:
                regions = 0 if image.reads else _regions(self.image, image_shape)
                self.scorer = components.loaded(settings.scorer.network)(settings.scorer, regions, settings.dim)
            self.build_further(settings)
        self.drops = getattr(image, "drop", 0.0) > 0
        encoders = {"image": image, "text": text}
        self.frozen = tuple(BACKBONES[name] for name, part in encoders.items() if getattr(part, "frozen", False))
        inside = tuple(prefix for prefix in BACKBONES.values() if prefix not in self.frozen)
        constant = [
            name for name, weight in self.named_parameters() if name.startswith(inside) and not weight.requires_grad
        ]
        self.frozen += tuple(constant)

    @property
    def networks(self) -> "list[DualEncoder]":
        """The independently trained networks: itself, or both twins."""
        return [self]

    def build_further(self, settings: ModelSettings) -> None:
        """Build additional networks of a subclass; called with the seeded random state of the weight initialisation."""

    def embed_images(self, images: Tensor) -> Embedded:
        output = self.image(images)
        if self.scorer is None:
            return unit(output.float())
        if isinstance(output, TokenSets):
            return output
        values, present = output
        vectors = unit(values.float())
        if self.training and self.drops:
            return self.scorer.image_whole(TokenSets(gathered(vectors, present), present.sum(1)))
        return self.scorer.image_whole(TokenSets(vectors, torch.full((len(vectors),), vectors.shape[1])))

    def embed_texts(self, texts: Tensor, lengths: Int[Tensor, " b"]) -> Embedded:
        """Embed token indices (b, n), or precomputed features of a frozen network, (b, k) or (b, n, k)."""
        output = self.text(texts, lengths)
        if self.scorer is None:
            return unit(output.float())
        if isinstance(output, TokenSets):
            return output
        values, present = output
        vectors = unit(values.float()) * present[..., None]
        return self.scorer.text_whole(TokenSets(vectors, lengths.cpu()))

    def embed_batch(self, images: Tensor, texts: Tensor, lengths: Int[Tensor, " b"]) -> EmbeddedBatch:
        """Embed a batch for training."""
        return self.embed_images(images), self.embed_texts(texts, lengths), ()

    def further_losses(
        self, objective: Any, batch: EmbeddedBatch, lengths: Int[Tensor, " n"], owners: Int[Tensor, " b"]
    ) -> dict[str, Float[Tensor, ""]]:
        """Return the model's additional losses for an embedded batch, as means over pairs; empty for most models."""
        return {}

    def scores(self, image: Embedded, text: Embedded) -> Float[Tensor, "i t"]:
        if isinstance(image, Tensor) and isinstance(text, Tensor):
            return image @ text.T
        assert self.scorer is not None
        return self.scorer(image, text)

    def heavy(self) -> list[nn.Module]:
        """Return the networks that dominate the training time."""
        return [self.image, self.text]

    def groups(self) -> dict[str, list[nn.Parameter]]:
        """Return the trainable parameters by learning-rate group: heads, image backbone and text backbone."""
        groups: dict[str, list[nn.Parameter]] = {"heads": [], "image": [], "text": []}
        for name, parameter in self.named_parameters():
            if not name.startswith(self.frozen):
                kind = next((kind for kind, prefix in BACKBONES.items() if name.startswith(prefix)), "heads")
                groups[kind].append(parameter)
        return {kind: parameters for kind, parameters in groups.items() if parameters}

    @property
    def sizes(self) -> tuple[int, int]:
        """Number of all parameters, and of trainable parameters."""
        learning = sum(weight.numel() for group in self.groups().values() for weight in group)
        return sum(weight.numel() for weight in self.parameters()), learning

    def parts(self) -> list[str]:
        """Return the part that each of `parameters()` belongs to: `last`, `image`, `text`, `scorer` or a component's.

        `last` is the last linear layer of the image encoder, if there is one outside its backbone and its pooling.
        """
        linear = [
            name
            for name, module in self.image.named_modules(prefix="image")
            if isinstance(module, nn.Linear) and not name.startswith(("image.backbone.", "image.pool."))
        ]
        last = f"{linear[-1]}." if linear else None
        names = [name for name, _ in self.named_parameters()]
        return ["last" if last and name.startswith(last) else name.partition(".")[0] for name in names]

    def hold_image_backbone(self, still: bool) -> None:
        """Freeze the image backbone (`still`) or unfreeze it, if it is trainable at all."""
        backbone = getattr(self.image, "backbone", None)
        for name, weight in backbone.named_parameters() if backbone is not None else ():
            if not f"{BACKBONES['image']}{name}".startswith(self.frozen):
                weight.requires_grad_(not still)

    def weights(self) -> dict[str, Tensor]:
        """Return the weights to save in a checkpoint: all except those of frozen backbones."""
        return {name: value for name, value in self.state_dict().items() if not name.startswith(self.frozen)}

    def load_weights(self, weights: Mapping[str, Tensor]) -> None:
        self.load_state_dict({**self.state_dict(), **weights})

    def start_from(self, weights: Mapping[str, Tensor]) -> None:
        """Load a parent's weights; backbones that were frozen in the parent keep their current weights.

        Raises UserError if names or shapes do not match.
        """
        state = self.state_dict()
        lacking = [name for name in state if name not in weights and not name.startswith(tuple(BACKBONES.values()))]
        wrong = [name for name, value in weights.items() if name not in state or state[name].shape != value.shape]
        if lacking or wrong:
            raise UserError(
                f"the parent's weights do not match this model: {', '.join((lacking + wrong)[:3])} differ in name or "
                "shape. A recipe and the recipe it starts from need the same head, text encoder and dim."
            )
        self.load_weights(weights)


def class_of(settings: ModelSettings) -> type[DualEncoder]:
    """Return the model class of the component that the settings use, or `DualEncoder` if it defines none."""
    classes = [one.network for one in components.of_model(settings).values() if one.network]
    return components.loaded(classes[0]) if classes else DualEncoder


@torch.no_grad()
def _regions(encoder: nn.Module, image_shape: tuple[int, ...]) -> int:
    pixels = len(image_shape) == 3
    values, _ = encoder.eval()(torch.zeros(1, *image_shape, dtype=torch.uint8 if pixels else torch.float32))
    encoder.train()
    return int(values.shape[1])
