"""Image backbones: `transformers` networks from pixels to features, run before training or during it."""

from math import isqrt
from typing import Any

import torch
from jaxtyping import Float, UInt8
from torch import Tensor, nn

from goalgrid.grid.errors import UserError
from goalgrid.grid.settings.image_encoders import BackboneSettings
from goalgrid.retrieval.encoders import learning, pretrained
from goalgrid.retrieval.encoders.calls.called import as_called
from goalgrid.retrieval.encoders.calls.kinds import NAFLEX
from goalgrid.retrieval.encoders.statistics import STATISTICS

CLASS_TOKENS = ("cls_token", "class_embedding")
"""Names of class-token parameters in `transformers`; the class token is the first of all tokens."""
OTHER_TOKENS = ("register_tokens", "cls_register_token", "distillation_token")
"""Names of other special-token parameters, between class token and patches: DINOv2/v3 registers, RADIO, DeiT."""


class Vision(nn.Module):
    """A `transformers` network from pixels to features: one vector per image, or one per grid cell."""

    mean: Tensor
    deviation: Tensor

    def __init__(self, settings: BackboneSettings, places: pretrained.Places) -> None:
        super().__init__()
        projected = settings.output == "projected"
        self.network = pretrained.network(settings, places, part="vision_model", projected=projected)
        _check_pixels(self.network, settings.weights)
        self.grid = settings.output == "grid"
        self.still, self.frozen, self.partial = settings.norm_eval, settings.frozen, settings.trains is not None
        given: Any = as_called(settings, places).statistics
        means, deviations = (given[:3], given[3:]) if isinstance(given, tuple) else STATISTICS[given]
        self.register_buffer("mean", torch.tensor(means)[:, None, None] * 255, persistent=False)
        self.register_buffer("deviation", torch.tensor(deviations)[:, None, None] * 255, persistent=False)
        self.requires_grad_(not settings.frozen)
        learning.hold(self.network, settings.trains, "model.image.trains")
        self.classified, self.special = self._special_tokens()
        self.width = self._width(settings.size)

    def forward(self, images: UInt8[Tensor, "b 3 h w"]) -> Tensor:
        with torch.set_grad_enabled(
            torch.is_grad_enabled() and any(weight.requires_grad for weight in self.network.parameters())
        ):
            given = self.network((images.float() - self.mean) / self.deviation)
            if self.grid:
                return self._cells(given.last_hidden_state, images.shape[-1])
            # the map to the space that a network with two towers compares its vectors in
            projection: Any = getattr(self.network, "projection", nn.Identity())
            return projection(self._pooled(given, images.shape[-1]))

    def _cells(self, states: Tensor, size: int) -> Float[Tensor, "b n k"]:
        """Return the cells of a feature map, or the patches without the special tokens that precede them."""
        feature_map = states.ndim == 4
        cells = states.flatten(2).transpose(1, 2) if feature_map else states[:, self.special :]
        if not (states.shape[2] == states.shape[3] if feature_map else self._in_a_square(cells.shape[1], size)):
            other = 'Set model.image.output = "pooled".' if self.grid else "Choose another network."
            raise UserError(
                f"the grid cells of a {self.network.config.model_type} cannot be determined: for {size} x {size} "  # type: ignore[union-attr]
                f"pixels, its output has shape {tuple(states.shape[1:])} with {self.special} known special "
                f"tokens, and the remaining tokens do not form a square. {other}"
            )
        return cells

    def _in_a_square(self, cells: int, size: int) -> bool:
        """Return whether this many tokens form a square of patches, or of merged patches without special tokens."""
        row, patch = isqrt(cells), getattr(self.network.config, "patch_size", None)
        if patch is None or row * row != cells:
            return row * row == cells
        patches = size // (patch if isinstance(patch, int) else patch[0])
        return row == patches or (row < patches and not self.special)

    def _pooled(self, given: Any, size: int) -> Float[Tensor, "b k"]:
        """Return the network's own pooled output, or else its class token, or else the mean over its cells."""
        if getattr(given, "summary", None) is not None:  # RADIO's: chosen class tokens
            return given.summary
        if getattr(given, "pooler_output", None) is not None:
            return given.pooler_output.flatten(1)
        states = given.last_hidden_state
        return states[:, 0] if self.classified and states.ndim == 3 else self._cells(states, size).mean(dim=1)

    def _special_tokens(self) -> tuple[bool, int]:
        """Return whether there is a class token, and the number of tokens before the patches."""
        known, counts = CLASS_TOKENS + OTHER_TOKENS, dict[str, int]()
        for name, weight in self.network.named_parameters():
            last = name.rpartition(".")[2]
            if last in known and not name.startswith("head."):  # AIMv2's pooling has a token of its own
                counts[last] = weight.numel() // weight.shape[-1]
        return any(name in counts for name in CLASS_TOKENS), sum(counts.values())

    def train(self, mode: bool = True) -> "Vision":
        """Set the mode; a frozen network stays in evaluation mode, as do batch norms if the recipe says so."""
        super().train(mode and not self.frozen)
        if self.partial:
            learning.calm(self)
        if self.still:
            for module in self.modules():
                if isinstance(module, nn.modules.batchnorm._BatchNorm):
                    module.eval()
        return self

    def _width(self, size: int) -> int:
        """Return the width of a feature vector, found by running the network on a black image."""
        try:
            with torch.inference_mode():
                features = self.eval()(torch.zeros(1, 3, size, size, dtype=torch.uint8))
        except (TypeError, ValueError, RuntimeError) as error:
            raise UserError(
                f"the image backbone cannot process {size} x {size} pixels: {error} Set model.image.size."
            ) from error
        return int(features.shape[-1])


def _check_pixels(network: Any, weights: str) -> None:
    """Raise a UserError if a network does not read images of a fixed size as pixels."""
    if (kind := getattr(getattr(network, "config", None), "model_type", "")) == "siglip2_vision_model":
        raise UserError(f"weights {weights!r} are of the kind {kind!r}, which cannot be called: {NAFLEX}.")
