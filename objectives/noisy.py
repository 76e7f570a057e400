"""Adaptive margins: a pair that may be a mismatch is asked for less. Unified Eq. (26), (27)."""

from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor

from objectives.triplets import Triplets


def soft_margin(t: Triplets, margin: float, base: float = 10.0) -> Float[Tensor, "*#a 1"] | float:
    """m_i = margin (base^y - 1) / (base - 1), with y the probability that pair i is clean: 0 at y = 0, margin at 1.

    NCR's "exponential" form. Without an estimate of y every pair counts as clean.
    """
    if t.clean is None:
        return margin
    return margin * (base**t.clean - 1) / (base - 1)


def noisy_correspondence(t: Triplets, *, margin: float = 0.2, base: float = 10.0) -> Float[Tensor, "*a k"]:
    """[s_neg - s_pos + m_i]+ with the pair's own margin. Unified Eq. (27): the loss of NCR."""
    return torch.relu(t.s_neg - t.s_pos + soft_margin(t, margin, base))


NOISY: dict[str, Callable[..., Tensor]] = {"ncr": noisy_correspondence}
