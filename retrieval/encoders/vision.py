"""A network of `transformers` from pixels to features: what a backbone is, whether it runs before training or in it."""

from typing import Any

import torch
from jaxtyping import Float, UInt8
from torch import Tensor, nn

from grid.errors import UserError
from grid.settings.image_encoders import BackboneSettings
from retrieval.encoders import pretrained

STATISTICS = {
    "imagenet": ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
    "clip": ((0.48145466, 0.4578275, 0.40821073), (0.26862954, 0.26130258, 0.27577711)),
    "half": ((0.5, 0.5, 0.5), (0.5, 0.5, 0.5)),
    "caffe": ((122.7717 / 255, 115.9465 / 255, 102.9801 / 255), (1 / 255, 1 / 255, 1 / 255)),
}
"""Mean and standard deviation of each colour, red, green and blue, of values from 0 to 1."""


class Vision(nn.Module):
    """A network of `transformers` from pixels to features: one vector an image, or one a cell."""

    mean: Tensor
    deviation: Tensor

    def __init__(self, settings: BackboneSettings, places: pretrained.Places) -> None:
        super().__init__()
        projected = settings.output == "projected"
        self.network = pretrained.network(settings, places, part="vision_model", projected=projected)
        self.grid = settings.output == "grid"
        self.still, self.frozen = settings.norm_eval, settings.frozen
        names = [name for name, _ in self.network.named_parameters()]
        self.classified = any(name.endswith(("cls_token", "class_embedding")) for name in names)
        means, deviations = STATISTICS[settings.statistics]
        self.register_buffer("mean", torch.tensor(means)[:, None, None] * 255, persistent=False)
        self.register_buffer("deviation", torch.tensor(deviations)[:, None, None] * 255, persistent=False)
        self.requires_grad_(not settings.frozen)
        self.width = self._width(settings.size)

    def forward(self, images: UInt8[Tensor, "b 3 h w"]) -> Tensor:
        with torch.set_grad_enabled(torch.is_grad_enabled() and next(self.network.parameters()).requires_grad):
            given = self.network((images.float() - self.mean) / self.deviation)
            pooled = None if self.grid else self.projection(self._pooled(given))
        return self._cells(given.last_hidden_state) if pooled is None else pooled

    @property
    def projection(self) -> nn.Module:
        """What brings a pooled vector to the space that the network compares it in; nothing, where it has none."""
        found: nn.Module = getattr(self.network, "projection", nn.Identity())
        return found

    def _cells(self, states: Tensor) -> Float[Tensor, "b n k"]:
        """Cells of a feature map, or patches without the class token."""
        if states.ndim == 4:
            return states.flatten(2).transpose(1, 2)
        return states[:, 1:] if self.classified else states

    def _pooled(self, given: Any) -> Float[Tensor, "b k"]:
        """What the network itself pools to, else its class token, else the mean over its cells."""
        if getattr(given, "pooler_output", None) is not None:
            return given.pooler_output.flatten(1)
        states = given.last_hidden_state
        return states[:, 0] if self.classified else self._cells(states).mean(dim=1)

    def train(self, mode: bool = True) -> "Vision":
        """Frozen, the network stays in evaluation; so do its batch norms where the recipe says so."""
        super().train(mode and not self.frozen)
        if self.still:
            for module in self.modules():
                if isinstance(module, nn.modules.batchnorm._BatchNorm):
                    module.eval()
        return self

    def _width(self, size: int) -> int:
        """Values of one feature vector, by looking at an empty picture.

        Raises:
            UserError: the network does not take pictures of this size.
        """
        try:
            with torch.inference_mode():
                features = self.eval()(torch.zeros(1, 3, size, size, dtype=torch.uint8))
        except (ValueError, RuntimeError) as error:
            raise UserError(
                f"the image backbone cannot see {size} x {size} pixels: {error} Set model.image.size."
            ) from error
        return int(features.shape[-1])
