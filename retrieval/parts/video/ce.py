"""Collaborative experts: a vector an expert, gated by what the other experts saw. Liu et al., BMVC 2019."""

import torch
from jaxtyping import Float
from torch import Tensor, nn

from goalgrid.retrieval.encoders.pretrained import Places
from goalgrid.retrieval.parts.video.gated import NetVlad
from goalgrid.retrieval.parts.video.settings import CeSettings
from goalgrid.retrieval.parts.video.videos import unpacked
from goalgrid.retrieval.scorers.sets import Sets

FEW = 1e-11
"""Added to the number of experts that saw something, as in the code of CE."""


class CollaborativeExperts(nn.Module):
    """Every expert's vector to unit length in one space, then the gates, in the order of the experts' names.

    A gated vector takes the place of the ungated one at once, so the experts after it see it gated. An expert that saw
    nothing is a vector of zeros, which passes all layers and batch norms; it counts in no mean and in no score.
    """

    def __init__(self, settings: CeSettings, shape: tuple[int, ...], dim: int, places: Places) -> None:
        super().__init__()
        self.reads = settings.reads
        self.pools = nn.ModuleDict(
            {read.name: NetVlad(settings.clusters[read.name], 0, read.width) for read in self.reads if read.tokens}
        )
        sizes = [read.width * settings.clusters.get(read.name, 1) for read in self.reads]
        self.project = nn.ModuleList(nn.Linear(size, dim) for size in sizes)
        self.relate = Relate(dim)
        self.gates = nn.ModuleList(Gate(dim) for _ in self.reads)

    def forward(self, videos: Float[Tensor, "b values"]) -> Sets:
        experts, there = list[Tensor](), list[Tensor]()
        for read, project, part in zip(self.reads, self.project, unpacked(self.reads, videos), strict=True):
            found = self.pools[read.name](part.vectors) if read.tokens else part.vectors[:, 0]
            experts.append(nn.functional.normalize(project(found), dim=-1))
            there.append(part.tokens >= 0)
        present = torch.stack(there, dim=1).to(videos.dtype)
        vectors = self.collaborate(torch.stack(experts), present)
        return Sets(vectors, torch.full((len(vectors),), vectors.shape[1]), present)

    def collaborate(self, experts: Float[Tensor, "m b d"], present: Float[Tensor, "b m"]) -> Float[Tensor, "b m d"]:
        """e_i <- L2(e_i * sigmoid(BN(T_i) + BN'(W e_i))), with T_i the mean of g(e_i, e_j) over experts j.

        Only experts that saw something are in the mean; that of an expert which saw nothing is 0.
        """
        vectors = list(experts)
        counted = present.sum(1) + FEW
        for place, gate in enumerate(self.gates):
            related = self.relate(vectors[place], torch.stack(vectors))
            weights = present[:, place, None] * present / counted[:, None]
            vectors[place] = gate(vectors[place], torch.einsum("mbd,bm->bd", related, weights))
        return torch.stack(vectors, dim=1)


class Relate(nn.Module):
    """g(a, b): a linear layer of both, then twice batch norm, Mish and a linear layer.

    The code of CE calls g for one pair of experts at a time, so its batch norms see one pair, as `PairNorm` does.
    """

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.both = nn.Linear(2 * dim, dim)
        self.norms = nn.ModuleList(PairNorm(dim) for _ in range(2))
        self.layers = nn.ModuleList(nn.Linear(dim, dim) for _ in range(2))

    def forward(self, one: Float[Tensor, "b d"], others: Float[Tensor, "m b d"]) -> Float[Tensor, "m b d"]:
        """g of one expert with each of the others, in their order."""
        first, second = self.both.weight.chunk(2, dim=1)
        values = nn.functional.linear(others, second, self.both.bias) + nn.functional.linear(one, first)
        for norm, layer in zip(self.norms, self.layers, strict=True):
            values = layer(nn.functional.mish(norm(values)))
        return values


class PairNorm(nn.BatchNorm1d):
    """Batch norm of several batches in one call, each by its own statistics, as if called with one after another."""

    def forward(self, batches: Float[Tensor, "m b d"]) -> Float[Tensor, "m b d"]:
        if not self.training:
            return super().forward(batches.flatten(0, 1)).unflatten(0, batches.shape[:2])
        count = len(batches)
        weight, bias = self.weight.repeat(count), self.bias.repeat(count)
        mean, var = (torch.zeros_like(weight) for _ in range(2))
        side_by_side = batches.transpose(0, 1).flatten(1)
        found = nn.functional.batch_norm(side_by_side, mean, var, weight, bias, True, 1.0, self.eps)
        self._follow(mean.unflatten(0, (count, -1)), var.unflatten(0, (count, -1)))
        return found.unflatten(1, (count, -1)).transpose(0, 1)

    @torch.no_grad()
    def _follow(self, means: Float[Tensor, "m d"], variances: Float[Tensor, "m d"]) -> None:
        """The running statistics after every batch in turn."""
        assert self.running_mean is not None
        assert self.running_var is not None
        assert self.momentum is not None
        assert self.num_batches_tracked is not None
        for mean, var in zip(means, variances, strict=True):
            self.running_mean.lerp_(mean, self.momentum)
            self.running_var.lerp_(var, self.momentum)
        self.num_batches_tracked += len(means)


class Gate(nn.Module):
    """y / |y| with y = e * sigmoid(BN(t) + BN'(W e + w))."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.layer = nn.Linear(dim, dim)
        self.norm, self.norm_of_others = nn.BatchNorm1d(dim), nn.BatchNorm1d(dim)

    def forward(self, vector: Float[Tensor, "b d"], others: Float[Tensor, "b d"]) -> Float[Tensor, "b d"]:
        gate = self.norm(self.layer(vector)) + self.norm_of_others(others)
        return nn.functional.normalize(vector * gate.sigmoid(), dim=-1)
