"""Image encoders: from pixels (3, h, w), or features (k) or (n, k), to one vector per image, before normalisation.

A frozen backbone is run before training (features.py); its encoder then consists of the head alone, with the same
weight names.
"""

import torch
from jaxtyping import Float, UInt8
from torch import Tensor, nn

from goalgrid.grid.settings.image_encoders import BackboneSettings, CnnSettings, FeatureSettings
from goalgrid.retrieval.encoders import pretrained
from goalgrid.retrieval.encoders.pooling import Encoded, mean, pooling
from goalgrid.retrieval.encoders.vision import Vision

UNDROPPED = 0.2
"""Share of images that graded size augmentation leaves unchanged. VSE-infinity."""


class Cnn(nn.Module):
    """Convolutions that halve the resolution and double the channels, a linear map, and pooling over the grid."""

    def __init__(self, settings: CnnSettings, shape: tuple[int, ...], dim: int, places: pretrained.Places) -> None:
        super().__init__()
        blocks: list[nn.Module] = []
        channels = shape[0]
        for layer in range(settings.layers):
            width = settings.channels * 2**layer
            blocks += [nn.Conv2d(channels, width, 3, stride=2, padding=1, bias=False), nn.BatchNorm2d(width), nn.ReLU()]
            channels = width
        self.body = nn.Sequential(*blocks).to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        self.project = nn.Linear(channels, dim)
        self.pool = pooling(settings, dim)
        self.flip = settings.flip

    def forward(self, images: UInt8[Tensor, "b 3 h w"]) -> Encoded:
        pixels = images.float() / 127.5 - 1
        if self.flip and self.training:
            mirrored = torch.rand(len(pixels), device=pixels.device) < 0.5
            pixels = torch.where(mirrored[:, None, None, None], pixels.flip(-1), pixels)
        cells = self.body(pixels.contiguous(memory_format=torch.channels_last)).flatten(2).transpose(1, 2)
        if self.pool is mean:  # which commutes with a linear map
            return self.project(cells.mean(dim=1))
        return self.pool(self.project(cells), torch.ones(cells.shape[:2], dtype=torch.bool, device=cells.device))


class FeatureHead(nn.Module):
    """A head on feature vectors, with pooling if there are several per image (regions or grid cells)."""

    def __init__(
        self, settings: FeatureSettings | BackboneSettings, shape: tuple[int, ...], dim: int, places: pretrained.Places
    ) -> None:
        super().__init__()
        width = shape[-1]
        self.kind = settings.head
        self.normalize = settings.normalize
        self.dropout = nn.Dropout(settings.dropout)
        self.project = pretrained.head(self.kind, width, dim)
        if self.kind not in ("linear", "none"):
            first = nn.Linear(width if self.kind == "linear-mlp" else dim, settings.hidden)
            self.mlp = nn.Sequential(first, nn.BatchNorm1d(settings.hidden), nn.ReLU(), nn.Linear(settings.hidden, dim))
        self.pool = pooling(settings, dim)
        self.drop, self.graded = settings.drop, settings.drop_rule == "graded"
        if settings.init == "xavier" and isinstance(self.project, nn.Linear):
            nn.init.xavier_uniform_(self.project.weight)
            nn.init.zeros_(self.project.bias)

    def forward(self, features: Tensor) -> Encoded:
        values = features.float()
        if self.normalize:
            values = nn.functional.normalize(values, dim=-1)
        values = self.dropout(values)
        if values.ndim == 2:
            return self.head(values)
        present = self.augmented(values)
        if present is None and self.pool is mean and self.kind == "linear":  # mean and map commute
            return self.head(values.mean(dim=1))
        if present is None:
            present = torch.ones(values.shape[:2], dtype=torch.bool, device=values.device)
        return self.pool(self.head(values), present)

    def head(self, values: Float[Tensor, "*b k"]) -> Float[Tensor, "*b d"]:
        """W v (linear), W v + M v (linear-mlp, VSE-infinity), M W v (mlp), M W v + W v (residual-mlp, SelHN Fig. 2)."""
        projected = self.project(values)
        if self.kind in ("linear", "none"):
            return projected
        source = values if self.kind == "linear-mlp" else projected
        further = self.mlp(source.flatten(0, -2)).unflatten(0, source.shape[:-1])
        return further if self.kind == "mlp" else projected + further

    def augmented(self, values: Float[Tensor, "b n k"]) -> Tensor | None:
        """Return a random mask of the members to keep (size augmentation), at least one per image; None to keep all."""
        if not (self.training and self.drop):
            return None
        share = torch.full((len(values), 1), self.drop, device=values.device)
        if self.graded:
            draw = torch.rand(len(values), 1, device=values.device)
            share = share * draw * (draw > UNDROPPED)
        luck = torch.rand(values.shape[:2], device=values.device)
        return (luck >= share) | (luck == luck.amax(dim=1, keepdim=True))


class Backbone(FeatureHead):
    """A `transformers` network on pixels, followed by a head; the head alone if features are precomputed."""

    def __init__(self, settings: BackboneSettings, shape: tuple[int, ...], dim: int, places: pretrained.Places) -> None:
        vision = None if settings.feature_network else Vision(settings, places)
        super().__init__(settings, shape if vision is None else (vision.width,), dim, places)
        self.backbone = vision

    def forward(self, images: Tensor) -> Encoded:
        return super().forward(images if self.backbone is None else self.backbone(images))
