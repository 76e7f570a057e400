"""Image encoders: from pixels or features to one vector each, before normalisation.

A backbone turns pixels into features, a head projects features, a pooling makes one vector of many. A frozen backbone
runs before training (features.py); its encoder is then the head alone, under the same names of weights.
"""

from collections.abc import Callable
from typing import Any

import torch
from jaxtyping import Float, UInt8
from torch import Tensor, nn

from grid.encoders import BackboneSettings, CnnSettings, FeatureSettings, HeadName, ImageSettings
from grid.errors import UserError
from retrieval import pretrained
from retrieval.pooling import POOLING, mean

STATISTICS = {
    "imagenet": ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
    "clip": ((0.48145466, 0.4578275, 0.40821073), (0.26862954, 0.26130258, 0.27577711)),
    "half": ((0.5, 0.5, 0.5), (0.5, 0.5, 0.5)),
}
"""Mean and standard deviation of each colour, of values from 0 to 1."""

UNDROPPED = 0.2
"""Share of images that graded size augmentation leaves whole. VSE-infinity."""


class Cnn(nn.Module):
    """Convolutions that halve the side and double the channels, pooled over the grid that is left, then linear."""

    def __init__(self, settings: CnnSettings, shape: tuple[int, ...], dim: int) -> None:
        super().__init__()
        blocks: list[nn.Module] = []
        channels = shape[0]
        for layer in range(settings.layers):
            width = settings.channels * 2**layer
            blocks += [
                nn.Conv2d(channels, width, 3, stride=2, padding=1, bias=False),
                nn.BatchNorm2d(width),
                nn.ReLU(),
            ]
            channels = width
        self.body = nn.Sequential(*blocks).to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        self.project = nn.Linear(channels, dim)
        self.pool = POOLING[settings.pooling](dim, settings.pool_k)
        self.flip = settings.flip

    def forward(self, images: UInt8[Tensor, "b 3 h w"]) -> Float[Tensor, "b d"]:
        pixels = images.float() / 127.5 - 1
        if self.flip and self.training:
            mirrored = torch.rand(len(pixels), device=pixels.device) < 0.5
            pixels = torch.where(mirrored[:, None, None, None], pixels.flip(-1), pixels)
        cells = self.body(pixels.contiguous(memory_format=torch.channels_last)).flatten(2).transpose(1, 2)
        if self.pool is mean:  # which commutes with a linear map
            return self.project(cells.mean(dim=1))
        return self.pool(self.project(cells), torch.ones(cells.shape[:2], dtype=torch.bool, device=cells.device))


class Features(nn.Module):
    """A head on feature vectors, pooled over regions or cells where there are any."""

    def __init__(self, settings: FeatureSettings | BackboneSettings, width: int, dim: int) -> None:
        super().__init__()
        self.kind: HeadName = settings.head if isinstance(settings, BackboneSettings) else settings.encoder
        self.normalize = settings.normalize
        self.dropout = nn.Dropout(settings.dropout if isinstance(settings, FeatureSettings) else 0.0)
        self.project = nn.Linear(width, dim)
        if self.kind != "linear":
            self.mlp = _mlp(width if self.kind == "linear-mlp" else dim, settings.hidden, dim)
        self.pool = POOLING[settings.pooling](dim, settings.pool_k)
        self.drop, self.graded = settings.drop, getattr(settings, "drop_rule", "each") == "graded"
        if settings.init == "xavier":
            nn.init.xavier_uniform_(self.project.weight)
            nn.init.zeros_(self.project.bias)

    def forward(self, features: Tensor) -> Float[Tensor, "b d"]:
        """From features (b, k) or (b, n, k) of any float type."""
        values = features.float()
        if self.normalize:
            values = nn.functional.normalize(values, dim=-1)
        values = self.dropout(values)
        if values.ndim == 2:
            return self.head(values)
        present = self.kept(values)
        if present is None and self.pool is mean and self.kind == "linear":  # mean and map commute
            return self.head(values.mean(dim=1))
        if present is None:
            present = torch.ones(values.shape[:2], dtype=torch.bool, device=values.device)
        return self.pool(self.head(values), present)

    def head(self, values: Float[Tensor, "*b k"]) -> Float[Tensor, "*b d"]:
        """linear: W v; linear-mlp: W v + M v (VSE-infinity); mlp: M W v; residual-mlp: M W v + W v (SelHN Fig. 2)."""
        projected = self.project(values)
        if self.kind == "linear":
            return projected
        source = values if self.kind == "linear-mlp" else projected
        further = self.mlp(source.flatten(0, -2)).unflatten(0, source.shape[:-1])
        return further if self.kind == "mlp" else projected + further

    def kept(self, values: Float[Tensor, "b n k"]) -> Tensor | None:
        """Size augmentation: which members a training step sees, at least one; None: all."""
        if not (self.training and self.drop):
            return None
        share = torch.full((len(values), 1), self.drop, device=values.device)
        if self.graded:
            drawn = torch.rand(len(values), 1, device=values.device)
            share = share * drawn * (drawn > UNDROPPED)
        luck = torch.rand(values.shape[:2], device=values.device)
        return (luck >= share) | (luck == luck.amax(dim=1, keepdim=True))


class Backbone(Features):
    """A network of `transformers` on pixels, under a head."""

    def __init__(self, settings: BackboneSettings, places: pretrained.Places, dim: int) -> None:
        vision = Vision(settings, places)
        super().__init__(settings, vision.width, dim)
        self.backbone = vision

    def forward(self, images: UInt8[Tensor, "b 3 h w"]) -> Float[Tensor, "b d"]:
        return super().forward(self.backbone(images))


class Vision(nn.Module):
    """A network of `transformers` from pixels to features: one vector an image, or one a cell."""

    mean: Tensor
    deviation: Tensor

    def __init__(self, settings: BackboneSettings, places: pretrained.Places) -> None:
        super().__init__()
        self.network = pretrained.network(settings, places, part="vision_model")
        self.grid = settings.output == "grid"
        self.still, self.frozen = settings.norm_eval, settings.frozen
        self.classified = any(name.endswith(_CLASS_TOKENS) for name, _ in self.network.named_parameters())
        means, deviations = STATISTICS[settings.statistics]
        self.register_buffer("mean", torch.tensor(means)[:, None, None] * 255, persistent=False)
        self.register_buffer("deviation", torch.tensor(deviations)[:, None, None] * 255, persistent=False)
        self.requires_grad_(not settings.frozen)
        self.width = self._width(settings.size)

    def forward(self, images: UInt8[Tensor, "b 3 h w"]) -> Tensor:
        with torch.set_grad_enabled(torch.is_grad_enabled() and next(self.network.parameters()).requires_grad):
            given = self.network((images.float() - self.mean) / self.deviation)
        return self._cells(given.last_hidden_state) if self.grid else self._pooled(given)

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


_CLASS_TOKENS = ("cls_token", "class_embedding")


def _mlp(width: int, hidden: int, dim: int) -> nn.Sequential:
    """Linear, batch norm over all vectors, ReLU, linear."""
    return nn.Sequential(nn.Linear(width, hidden), nn.BatchNorm1d(hidden), nn.ReLU(), nn.Linear(hidden, dim))


def build(settings: ImageSettings, shape: tuple[int, ...], dim: int, places: pretrained.Places) -> nn.Module:
    """The encoder of images of this shape: (3, h, w) of pixels, (k) or (n, k) of features."""
    return IMAGE_ENCODERS[settings.encoder](settings, shape, dim, places)


def _cnn(settings: CnnSettings, shape: tuple[int, ...], dim: int, places: pretrained.Places) -> nn.Module:
    return Cnn(settings, shape, dim)


def _features(settings: FeatureSettings, shape: tuple[int, ...], dim: int, places: pretrained.Places) -> nn.Module:
    return Features(settings, shape[-1], dim)


def _backbone(settings: BackboneSettings, shape: tuple[int, ...], dim: int, places: pretrained.Places) -> nn.Module:
    """Its head alone, where its features are computed before training."""
    return Features(settings, shape[-1], dim) if settings.cached else Backbone(settings, places, dim)


IMAGE_ENCODERS: dict[str, Callable[[Any, tuple[int, ...], int, pretrained.Places], nn.Module]] = {
    "cnn": _cnn,
    "linear": _features,
    "linear-mlp": _features,
    "mlp": _features,
    "residual-mlp": _features,
    "backbone": _backbone,
}
