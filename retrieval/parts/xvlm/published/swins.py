"""X-VLM's Swin, told by its weights; and its tables, resized from the pictures of pre-training to larger pictures."""

import re
from collections.abc import Mapping
from math import isqrt
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

_TABLE = re.compile(r"vision_encoder\.layers\.(\d+)\.blocks\.(\d+)\.attn\.relative_position_bias_table$")
PRETRAINED_WINDOW = 7
"""Of pictures of 224 pixels. X-VLM fine-tunes on pictures of 384 pixels, in windows of 12."""


def xvlm(weights: Mapping[str, Tensor]) -> dict[str, Any]:
    """The settings of `model.image` for the Swin below `vision_encoder`, as X-VLM uses it for retrieval.

    A picture has as many pixels as the last stage has in one window.
    """
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
    """A table of biases, one for each offset and head, for larger windows, as the code of BEiT and X-VLM makes it.

    Offsets of the smaller window are spread geometrically, 0, 1, 1 + q, 1 + q + q^2, ..., so that the last one reaches
    the last offset of the larger window; a bicubic spline gives the biases between them. A table that is not smaller,
    or no square, is given back as it is: it does not fit.

    Args:
        rows: of the table to make, (2 w - 1)^2 for windows of side w.
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
    """As many numbers 1, 1 + q, 1 + q + q^2, ... as `count` says, with the q for which the last number is `last`."""
    low, high = 1.01, 1.5
    while high - low > 1e-6:
        q = (low + high) / 2
        low, high = (low, q) if (1 - q**count) / (1 - q) > last else (q, high)
    return np.cumsum(((low + high) / 2) ** np.arange(count))
