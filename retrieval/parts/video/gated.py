"""Parts of CE that MMT shares: NetVLAD and gated embedding units. Miech et al., ICCV Workshops 2019."""

import math

import torch
from jaxtyping import Float
from torch import Tensor, nn


class NetVlad(nn.Module):
    """V_k = sum over n of a_nk (x_n - c_k), a the softmax of batch-normalised products, each V_k and all to length 1.

    Ghost clusters take part in the softmax and are left out. Every token takes part, the zeros that fill a video up,
    too, as in the code of CE: so a video must always be filled up to the same number of tokens.
    """

    def __init__(self, clusters: int, ghosts: int, width: int) -> None:
        super().__init__()
        self.clusters = clusters
        self.assign = nn.Parameter(torch.randn(width, clusters + ghosts) / math.sqrt(width))
        self.norm = nn.BatchNorm1d(clusters + ghosts)
        self.centres = nn.Parameter(torch.randn(1, width, clusters) / math.sqrt(width))

    def forward(self, tokens: Float[Tensor, "b n d"]) -> Float[Tensor, "b dk"]:
        """The residuals, d-major: value d * K + k is that of cluster k."""
        shares = self.norm((tokens @ self.assign).flatten(0, 1)).softmax(-1).unflatten(0, tokens.shape[:2])
        shares = shares[..., : self.clusters]
        residuals = tokens.transpose(1, 2) @ shares - shares.sum(1, keepdim=True) * self.centres
        return nn.functional.normalize(nn.functional.normalize(residuals, dim=1).flatten(1), dim=-1)


class GatedUnit(nn.Module):
    """y / |y| with y = z * sigmoid(BN(G z + g)) and z = W x + w."""

    def __init__(self, width: int, dim: int) -> None:
        super().__init__()
        self.project, self.gate, self.norm = nn.Linear(width, dim), nn.Linear(dim, dim), nn.BatchNorm1d(dim)

    def forward(self, values: Float[Tensor, "b k"]) -> Float[Tensor, "b d"]:
        projected = self.project(values)
        return nn.functional.normalize(projected * self.norm(self.gate(projected)).sigmoid(), dim=-1)
