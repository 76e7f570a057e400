"""Swin as in X-VLM: attention within windows of tokens; every other block shifts the windows by half their side.

Weights are named as in the authors' code. `transformers.SwinModel` has no drop-path on a block's second branch.
"""

import re
from collections.abc import Mapping
from math import isqrt
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Int, Shaped, UInt8
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention

from goalgrid.retrieval.components.xvlm.settings import SWIN_PATCH, SwinSettings
from goalgrid.retrieval.encoders.pretrained import Places
from goalgrid.retrieval.encoders.statistics import STATISTICS

MLP_RATIO = 4
"""Ratio of a block's MLP width to the stage's width."""


class WindowAttention(nn.Module):
    """Multi-head attention within windows of side x side tokens, with a learnt relative position bias."""

    relative_position_index: Int[Tensor, "n n"]

    def __init__(self, width: int, heads: int, side: int) -> None:
        super().__init__()
        self.heads = heads
        self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.relative_position_bias_table = nn.Parameter(torch.zeros((2 * side - 1) ** 2, heads))
        self.register_buffer("relative_position_index", _offsets(side), persistent=False)

    def forward(
        self, windows: Float[Tensor, "b w n d"], apart: Bool[Tensor, "w n n"] | None
    ) -> Float[Tensor, "b w n d"]:
        """Attend within each window, except to tokens `apart`, since shifted windows join opposite image borders."""
        b, w, n, _ = windows.shape
        bias = self.relative_position_bias_table[self.relative_position_index].permute(2, 0, 1)  # (heads, n, n)
        whole = bias.expand(w, -1, -1, -1)
        if apart is not None:
            whole = whole.masked_fill(apart[:, None], -torch.inf)
        # Windows are batched with the heads, so that all images share one mask.
        parts = self.qkv(windows).view(b, w, n, 3, self.heads, -1).permute(3, 0, 1, 4, 2, 5).flatten(2, 3)
        query, key, value = parts.unbind(0)
        mask = whole.flatten(0, 1).to(query.dtype)
        attended = scaled_dot_product_attention(query, key, value, attn_mask=mask.expand(b, -1, -1, -1))
        return self.proj(attended.unflatten(1, (w, self.heads)).transpose(2, 3).flatten(3))


class DropPath(nn.Module):
    """Drops a residual branch for a random share of the images in training."""

    def __init__(self, share: float) -> None:
        super().__init__()
        self.share = share

    def forward(self, branch: Float[Tensor, "b n d"]) -> Float[Tensor, "b n d"]:
        if not (self.training and self.share):
            return branch
        stays = torch.rand(len(branch), 1, 1, device=branch.device) >= self.share
        return branch * stays / (1 - self.share)


class SwinBlock(nn.Module):
    """A pre-norm block: attention within windows, then an MLP, with residual connections. Sizes are in tokens."""

    apart: Bool[Tensor, "w n n"] | None

    def __init__(self, width: int, heads: int, grid: int, side: int, shift: int, drop_path: float) -> None:
        super().__init__()
        self.grid, self.side, self.shift = grid, side, shift
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attn = WindowAttention(width, heads, side)
        hidden = MLP_RATIO * width
        self.mlp = nn.ModuleDict({"fc1": nn.Linear(width, hidden), "fc2": nn.Linear(hidden, width)})
        self.drop_path = DropPath(drop_path)
        self.register_buffer("apart", _apart(grid, side, shift) if shift else None, persistent=False)

    def forward(self, tokens: Float[Tensor, "b n d"]) -> Float[Tensor, "b n d"]:
        tokens = tokens + self.drop_path(self._attended(self.norm1(tokens)))
        hidden = nn.functional.gelu(self.mlp["fc1"](self.norm2(tokens)))
        return tokens + self.drop_path(self.mlp["fc2"](hidden))

    def _attended(self, tokens: Float[Tensor, "b n d"]) -> Float[Tensor, "b n d"]:
        picture = tokens.unflatten(1, (self.grid, self.grid))
        if self.shift:
            picture = picture.roll((-self.shift, -self.shift), (1, 2))
        picture = _joined(self.attn(_windows(picture, self.side), self.apart), self.grid, self.side)
        if self.shift:
            picture = picture.roll((self.shift, self.shift), (1, 2))
        return picture.flatten(1, 2)


class Merging(nn.Module):
    """Patch merging: four neighbouring tokens become one of twice the width."""

    def __init__(self, width: int, grid: int) -> None:
        super().__init__()
        self.grid = grid
        self.norm, self.reduction = nn.LayerNorm(4 * width), nn.Linear(4 * width, 2 * width, bias=False)

    def forward(self, tokens: Float[Tensor, "b n d"]) -> Float[Tensor, "b m k"]:
        picture = tokens.unflatten(1, (self.grid, self.grid))
        corners = [picture[:, row::2, column::2] for column in (0, 1) for row in (0, 1)]
        return self.reduction(self.norm(torch.cat(corners, dim=-1).flatten(1, 2)))


class Swin(nn.Module):
    """The Swin transformer, from normalised pixels to final states; drop-path rises linearly, from 0 at block 1."""

    def __init__(self, settings: SwinSettings) -> None:
        super().__init__()
        width, grid = settings.width, settings.size // SWIN_PATCH
        patches = nn.Conv2d(3, width, SWIN_PATCH, stride=SWIN_PATCH)
        self.patch_embed = nn.ModuleDict({"proj": patches, "norm": nn.LayerNorm(width)})
        count = sum(settings.depths)
        drops = [settings.drop_path * block / max(1, count - 1) for block in range(count)]
        self.layers = nn.ModuleList()
        for stage, (depth, heads) in enumerate(zip(settings.depths, settings.heads, strict=True)):
            side = min(settings.window, grid)
            shifts = [side // 2 if block % 2 and side < grid else 0 for block in range(depth)]
            blocks = nn.ModuleList(SwinBlock(width, heads, grid, side, shift, drops.pop(0)) for shift in shifts)
            layer = nn.ModuleDict({"blocks": blocks})
            if stage + 1 < len(settings.depths):
                layer["downsample"] = Merging(width, grid)
                width, grid = 2 * width, grid // 2
            self.layers.append(layer)
        self.norm, self.width = nn.LayerNorm(width), width
        for module in self.modules():
            if isinstance(module, nn.Linear):
                nn.init.trunc_normal_(module.weight, std=0.02)
                if module.bias is not None:
                    nn.init.zeros_(module.bias)
            elif isinstance(module, WindowAttention):
                nn.init.trunc_normal_(module.relative_position_bias_table, std=0.02)

    def forward(self, pixels: Float[Tensor, "b 3 h w"]) -> Float[Tensor, "b n d"]:
        tokens = self.patch_embed["norm"](self.patch_embed["proj"](pixels).flatten(2).transpose(1, 2))
        for layer in self.layers:
            assert isinstance(layer, nn.ModuleDict)
            for block in layer["blocks"].children():
                tokens = block(tokens)
            if "downsample" in layer:
                tokens = layer["downsample"](tokens)
        return self.norm(tokens)


class SwinEncoder(nn.Module):
    """X-VLM's image encoder on raw pixels: a linear layer on the mean token; the fusion encoder reads all tokens."""

    mean: Tensor
    deviation: Tensor

    def __init__(self, settings: SwinSettings, shape: tuple[int, ...], dim: int, places: Places) -> None:
        super().__init__()
        self.backbone = Swin(settings)
        self.project = nn.Linear(self.backbone.width, dim)
        for name, values in zip(("mean", "deviation"), STATISTICS[settings.statistics], strict=True):
            self.register_buffer(name, torch.tensor(values)[:, None, None] * 255, persistent=False)

    def tokens(self, images: UInt8[Tensor, "b 3 h w"]) -> Float[Tensor, "b m k"]:
        """Return the mean of the final states, followed by the states in row-major order."""
        states = self.backbone((images.float() - self.mean) / self.deviation)
        return torch.cat([states.mean(dim=1, keepdim=True), states], dim=1)

    def forward(self, images: UInt8[Tensor, "b 3 h w"]) -> Float[Tensor, "b d"]:
        return self.project(self.tokens(images)[:, 0])


def _windows(picture: Shaped[Tensor, "b h h d"], side: int) -> Shaped[Tensor, "b w n d"]:
    count = picture.shape[1] // side
    cells = picture.unflatten(1, (count, side)).unflatten(3, (count, side))  # (b, rows, side, columns, side, d)
    return cells.transpose(2, 3).flatten(3, 4).flatten(1, 2)


def _joined(windows: Float[Tensor, "b w n d"], grid: int, side: int) -> Float[Tensor, "b h h d"]:
    count = grid // side
    cells = windows.unflatten(2, (side, side)).unflatten(1, (count, count))
    return cells.transpose(2, 3).flatten(3, 4).flatten(1, 2)


def _offsets(side: int) -> Int[Tensor, "n n"]:
    """Return the row of the bias table for each pair of tokens in a window, given by their offset."""
    places = torch.cartesian_prod(torch.arange(side), torch.arange(side))
    rows, columns = (places[:, None] - places[None, :] + side - 1).unbind(-1)
    return rows * (2 * side - 1) + columns


def _apart(grid: int, side: int, shift: int) -> Bool[Tensor, "w n n"]:
    """Return which token pairs of a shifted window come from opposite borders of the image."""
    strip = torch.zeros(grid, dtype=torch.int64)
    strip[grid - side : grid - shift], strip[grid - shift :] = 1, 2
    regions = _windows((3 * strip[:, None] + strip)[None, ..., None], side)[0, ..., 0]
    return regions[:, :, None] != regions[:, None, :]


_TABLE = re.compile(r"vision_encoder\.layers\.(\d+)\.blocks\.(\d+)\.attn\.relative_position_bias_table$")
PRETRAINED_WINDOW = 7
"""Window side for images of 224 pixels. X-VLM fine-tunes on images of 384 pixels with windows of 12."""


def xvlm(weights: Mapping[str, Tensor]) -> dict[str, Any]:
    """Infer the settings of `model.image` from the weights below `vision_encoder`; the last stage has one window."""
    tables = {
        tuple(map(int, match.groups())): value for name, value in weights.items() if (match := _TABLE.match(name))
    }
    stages = sorted({stage for stage, _ in tables})
    sizes: dict[str, Any] = {
        "image.depths": [1 + max(block for of, block in tables if of == stage) for stage in stages],
        "image.heads": [int(tables[stage, 0].shape[1]) for stage in stages],
    }
    window = (isqrt(int(tables[stages[0], 0].shape[0])) + 1) // 2
    if window == PRETRAINED_WINDOW:
        return sizes
    return {**sizes, "image.window": window, "image.size": 4 * 2 ** (len(stages) - 1) * window}


def resized(table: Float[Tensor, "n h"], rows: int) -> Float[Tensor, "m h"]:
    """Interpolate a table of relative position biases (offsets, heads) to larger windows, as BEiT and X-VLM do.

    Offsets of the smaller window are placed geometrically, at 0, 1, 1 + q, 1 + q + q^2, ..., with the last one at the
    last offset of the larger window; a bicubic spline interpolates between them. A table has (2 w - 1)^2 rows for
    windows of side w; one that is not smaller than `rows`, or not square, is returned unchanged.
    """
    from scipy.interpolate import RectBivariateSpline

    before, after = isqrt(len(table)), isqrt(rows)
    if before**2 != len(table) or after**2 != rows or not 3 < before < after:
        return table
    steps = _steps(before // 2, after // 2)
    places = np.concatenate([-steps[::-1], [0.0], steps])
    target = np.arange(-(after // 2), after // 2 + 1)
    heads = table.double().numpy().reshape(before, before, -1)
    grid = [RectBivariateSpline(places, places, heads[..., head])(target, target) for head in range(heads.shape[-1])]
    return torch.from_numpy(np.stack(grid, axis=-1).reshape(rows, -1)).to(table.dtype)


def _steps(count: int, last: int) -> np.ndarray:
    """Return `count` numbers 1, 1 + q, 1 + q + q^2, ..., with q chosen so that the last one is `last`."""
    low, high = 1.01, 1.5
    while high - low > 1e-6:
        q = (low + high) / 2
        low, high = (low, q) if (1 - q**count) / (1 - q) > last else (q, high)
    return np.cumsum(((low + high) / 2) ** np.arange(count))
