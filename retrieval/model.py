"""VSE: two encoders into one space of unit vectors, where the similarity is the cosine."""

from collections.abc import Mapping

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from grid.encoders import ModelSettings, Pretrained
from grid.errors import UserError
from retrieval.encoders import pretrained
from retrieval.encoders.image import IMAGE_ENCODERS
from retrieval.encoders.text import TEXT_ENCODERS

BACKBONES = {"image": "image.backbone.", "text": "text.backbone."}
"""Where the weights of the pretrained networks stand, by modality."""


class Vse(nn.Module):
    """Visual-semantic embedding.

    Args:
        image_shape: of one image as it is read: pixels, or features.
        words: number of indices that captions are made of.
        seed: determines the first weights; the global random state is left as it was.
        places: folder by name of pretrained weights.
    """

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
        image, text = settings.image, settings.text
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(seed)  # of the processor alone: it is there that a model is built
            self.image = IMAGE_ENCODERS[image.encoder](image, image_shape, settings.dim, places)
            self.text = TEXT_ENCODERS[text.encoder](text, words, settings.dim, places)
        parts = {"image": image, "text": text}
        self.frozen = tuple(BACKBONES[name] for name, part in parts.items() if getattr(part, "frozen", False))

    def embed_images(self, images: Tensor) -> Float[Tensor, "b d"]:
        return nn.functional.normalize(self.image(images).float(), dim=-1)

    def embed_texts(self, ids: Int[Tensor, "b n"], lengths: Int[Tensor, " b"]) -> Float[Tensor, "b d"]:
        return nn.functional.normalize(self.text(ids, lengths).float(), dim=-1)

    def groups(self) -> dict[str, list[nn.Parameter]]:
        """Parameters that may learn, by learning rate: those of the heads, of the image and of the text backbone."""
        groups: dict[str, list[nn.Parameter]] = {"heads": [], "image": [], "text": []}
        for name, parameter in self.named_parameters():
            if not name.startswith(self.frozen):
                kind = next((kind for kind, prefix in BACKBONES.items() if name.startswith(prefix)), "heads")
                groups[kind].append(parameter)
        return {kind: parameters for kind, parameters in groups.items() if parameters}

    def hold_image_backbone(self, still: bool) -> None:
        """Keep the image backbone as it is, or let it learn, where there is one that may."""
        backbone = getattr(self.image, "backbone", None)
        if backbone is not None and BACKBONES["image"] not in self.frozen:
            backbone.requires_grad_(not still)

    def weights(self) -> dict[str, Tensor]:
        """Everything that training may change: what a checkpoint needs. Frozen backbones are not among it."""
        return {name: value for name, value in self.state_dict().items() if not name.startswith(self.frozen)}

    def load_weights(self, weights: Mapping[str, Tensor]) -> None:
        self.load_state_dict({**self.state_dict(), **weights})

    def start_from(self, weights: Mapping[str, Tensor]) -> None:
        """Take a parent's weights; a backbone that the parent had frozen keeps its pretrained ones.

        Raises:
            UserError: the two models do not fit.
        """
        own = self.state_dict()
        lacking = [name for name in own if name not in weights and not name.startswith(tuple(BACKBONES.values()))]
        wrong = [name for name, value in weights.items() if name not in own or own[name].shape != value.shape]
        if lacking or wrong:
            raise UserError(
                f"the parent's weights do not fit this model: {', '.join((lacking + wrong)[:3])} differ in name or "
                "shape. A recipe and the one it starts from need the same head, text encoder and dim."
            )
        self.load_weights(weights)


def pretrained_parts(settings: ModelSettings) -> list[Pretrained]:
    """The settings of the networks that come with weights of their own."""
    return [part for part in (settings.image, settings.text) if isinstance(part, Pretrained)]
