"""Networks of CE and MMT: one vector per expert for videos and captions, and the mixture score."""

import math

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn.functional import gelu, scaled_dot_product_attention

from goalgrid.retrieval.components.video.settings import CeSettings, ExpertTextSettings, MixtureSettings, MmtSettings
from goalgrid.retrieval.components.video.videos import unpacked
from goalgrid.retrieval.encoders.pretrained import Places
from goalgrid.retrieval.encoders.reasoning import start_as_bert
from goalgrid.retrieval.encoders.text import features_of, present_of, text_network
from goalgrid.retrieval.scorers.cross_attention import SetScorer
from goalgrid.retrieval.scorers.sets import TokenSets

FEW = 1e-11
"""Added to the number of available experts, as in CE's code."""


class CollaborativeExperts(nn.Module):
    """CE: projects each expert's vector to one space, at unit length, then applies gates in alphabetical order.

    A gated vector replaces the ungated one immediately, so later experts see it gated. A missing expert is a vector of
    zeros, which passes through all layers and batch norms, but is excluded from all means and scores.
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

    def forward(self, videos: Float[Tensor, "b values"]) -> TokenSets:
        experts, there = list[Tensor](), list[Tensor]()
        for read, project, part in zip(self.reads, self.project, unpacked(self.reads, videos), strict=True):
            found = self.pools[read.name](part.vectors) if read.tokens else part.vectors[:, 0]
            experts.append(nn.functional.normalize(project(found), dim=-1))
            there.append(part.tokens >= 0)
        present = torch.stack(there, dim=1).to(videos.dtype)
        vectors = self.collaborate(torch.stack(experts), present)
        return TokenSets(vectors, torch.full((len(vectors),), vectors.shape[1]), present)

    def collaborate(self, experts: Float[Tensor, "m b d"], present: Float[Tensor, "b m"]) -> Float[Tensor, "b m d"]:
        """e_i <- L2(e_i * sigmoid(BN(T_i) + BN'(W e_i))), with T_i the mean of g(e_i, e_j) over experts j.

        The mean covers only available experts; it is 0 for a missing expert.
        """
        vectors = list(experts)
        counted = present.sum(1) + FEW
        for place, gate in enumerate(self.gates):
            related = self.relate(vectors[place], torch.stack(vectors))
            weights = present[:, place, None] * present / counted[:, None]
            vectors[place] = gate(vectors[place], torch.einsum("mbd,bm->bd", related, weights))
        return torch.stack(vectors, dim=1)


class Relate(nn.Module):
    """g(a, b): a linear layer on both, then two times batch norm, Mish and a linear layer.

    CE's code calls g for one pair of experts at a time, so batch statistics are per pair; `PairNorm` reproduces this.
    """

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.both = nn.Linear(2 * dim, dim)
        self.norms = nn.ModuleList(PairNorm(dim) for _ in range(2))
        self.layers = nn.ModuleList(nn.Linear(dim, dim) for _ in range(2))

    def forward(self, one: Float[Tensor, "b d"], others: Float[Tensor, "m b d"]) -> Float[Tensor, "m b d"]:
        first, second = self.both.weight.chunk(2, dim=1)
        values = nn.functional.linear(others, second, self.both.bias) + nn.functional.linear(one, first)
        for norm, layer in zip(self.norms, self.layers, strict=True):
            values = layer(nn.functional.mish(norm(values)))
        return values


class PairNorm(nn.BatchNorm1d):
    """Batch norm for several batches in one call, with separate statistics, as if called once per batch."""

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


PLACES = 32
"""Number of time embeddings: 0 for the whole video, 1 for unknown time, then one per second; the last for all later."""
EPS = 1e-12
"""Epsilon of the layer norms, as in BERT."""


class MultiModalTransformer(nn.Module):
    """MMT: one vector per expert, the transformer's output at the expert's first position.

    The sequence is a vector of zeros, then for each expert the maximum over its vectors followed by its tokens. Missing
    experts are masked in the attention, but the output at their first position still counts in the score.
    """

    def __init__(self, settings: MmtSettings, shape: tuple[int, ...], dim: int, places: Places) -> None:
        super().__init__()
        self.reads = settings.reads
        self.project = nn.ModuleList(nn.Linear(read.width, dim) for read in self.reads)
        self.expert = nn.Embedding(1 + len(self.reads), dim)
        self.time = nn.Embedding(PLACES, dim)
        self.norm, self.dropout = nn.LayerNorm(dim, eps=EPS), nn.Dropout(settings.dropout)
        self.layers = nn.ModuleList(MmtLayer(settings, dim) for _ in range(settings.layers))
        for part in (self.expert, self.time, self.layers):
            start_as_bert(part)

    def forward(self, videos: Float[Tensor, "b values"]) -> TokenSets:
        zeros = videos.new_zeros(len(videos), 1, self.norm.normalized_shape[0])
        whole = zeros[..., 0].long()
        values, kinds, times, there = [zeros], [self.expert.weight[:1]], [whole], [whole == 0]
        found = zip(self.reads, self.project, self.expert.weight[1:], unpacked(self.reads, videos), strict=True)
        for read, project, expert, part in found:
            values.append(nn.functional.normalize(project(part.vectors), dim=-1))
            kinds.append(expert.expand(read.rows, -1))
            times += [whole, place_of(part.times[:, 1:])]
            there.append(torch.arange(read.rows, device=videos.device) <= part.tokens[:, None])
        embedded = torch.cat(values, dim=1) + self.time(torch.cat(times, dim=1)) + torch.cat(kinds)
        states, present = self.dropout(self.norm(embedded)), torch.cat(there, dim=1)
        for layer in self.layers:
            states = layer(states, present)
        wholes = [1 + sum(read.rows for read in self.reads[:kind]) for kind in range(len(self.reads))]
        vectors = nn.functional.normalize(torch.stack([states[:, place] for place in wholes], dim=1), dim=-1)
        return TokenSets(vectors, torch.full((len(vectors),), len(wholes)), torch.ones_like(vectors[..., 0]))


def place_of(times: Float[Tensor, "*b"]) -> Int[Tensor, "*b"]:
    """Return the index of the time embedding: 2 + floor(seconds), at most `PLACES` - 1; 1 if unknown.

    >>> place_of(torch.tensor([-1.0, 0.0, 0.9, 1.5, 100.0])).tolist()
    [1, 2, 2, 3, 31]
    """
    return torch.where(times < 0, 1, (times + 2).floor()).long().clamp(max=PLACES - 1)


class MmtLayer(nn.Module):
    """A BERT layer: attention, then an MLP, each with a residual connection followed by layer norm."""

    def __init__(self, settings: MmtSettings, dim: int) -> None:
        super().__init__()
        self.heads, self.share = settings.heads, settings.dropout
        self.query, self.key, self.value, self.out = (nn.Linear(dim, dim) for _ in range(4))
        self.wide, self.narrow = nn.Linear(dim, settings.feed_forward), nn.Linear(settings.feed_forward, dim)
        self.first, self.second = (nn.LayerNorm(dim, eps=EPS) for _ in range(2))
        self.dropout = nn.Dropout(settings.dropout)

    def forward(self, states: Float[Tensor, "b n d"], present: Bool[Tensor, "b n"]) -> Float[Tensor, "b n d"]:
        query, key, value = (
            part(states).unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in (self.query, self.key, self.value)
        )
        share = self.share if self.training else 0.0
        attended = scaled_dot_product_attention(query, key, value, attn_mask=present[:, None, None], dropout_p=share)
        states = self.first(states + self.dropout(self.out(attended.transpose(1, 2).flatten(2))))
        wide = self.narrow(gelu(self.wide(states)))
        return self.second(states + self.dropout(wide))


class NetVlad(nn.Module):
    """V_k = sum_n a_nk (x_n - c_k), with a the softmax of batch-normalised products; V_k, then V, have unit length.

    Ghost clusters are included in the softmax but not in the output. Zero padding is not masked, as in CE's code, so
    videos must always be padded to the same number of tokens.
    """

    def __init__(self, clusters: int, ghosts: int, width: int) -> None:
        super().__init__()
        self.clusters = clusters
        self.assign = nn.Parameter(torch.randn(width, clusters + ghosts) / math.sqrt(width))
        self.norm = nn.BatchNorm1d(clusters + ghosts)
        self.centres = nn.Parameter(torch.randn(1, width, clusters) / math.sqrt(width))

    def forward(self, tokens: Float[Tensor, "b n d"]) -> Float[Tensor, "b dk"]:
        """Return the flattened residuals; value d * K + k is dimension d of cluster k."""
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


class ExpertTexts(nn.Module):
    """Text encoder of CE and MMT: one gated vector per expert, and the weight of each expert in the score.

    A caption is represented by NetVLAD over its states, padded to a fixed number, or by the state of its first token.
    """

    def __init__(self, settings: ExpertTextSettings, words: int, dim: int, places: Places) -> None:
        super().__init__()
        width, self.backbone = words, None
        if settings.feature_network is None:
            self.backbone = text_network(settings, words, places)
            self.backbone.requires_grad_(not settings.frozen)
            width = int(self.backbone.config.hidden_size)  # type: ignore[arg-type, union-attr]
        self.tokens = settings.tokens
        self.pool = NetVlad(settings.clusters, 1, width) if settings.clusters else None
        width *= settings.clusters or 1
        self.units = nn.ModuleList(GatedUnit(width, dim) for _ in range(settings.experts))
        self.dropout = nn.Dropout(settings.dropout)
        self.weigh = nn.Linear(width, settings.experts)

    def forward(self, ids: Tensor, lengths: Int[Tensor, " b"]) -> TokenSets:
        """Encode token indices (b, n), or cached states (b, n, k) of a frozen network."""
        states = ids.float() if self.backbone is None else features_of(self.backbone, "states", ids, lengths)
        if self.pool is None:
            caption = states[:, 0]
        else:
            states = (states * present_of(states, lengths)[..., None])[:, : self.tokens]
            caption = self.pool(nn.functional.pad(states, (0, 0, 0, self.tokens - states.shape[1])))
        vectors = torch.stack([unit(caption) for unit in self.units], dim=1)
        shares = self.weigh(self.dropout(caption)).softmax(-1)
        return TokenSets(vectors, torch.full((len(vectors),), len(self.units)), shares)


LEAST = 1e-11
"""Minimum sum of weights to divide by: a video without any available expert scores 0."""


class Mixture(SetScorer):
    """s = sum_m w_m a_m <v_m, t_m> / sum_m w_m a_m, with caption weights w and availability a of experts.

    `whole` contains a (m) for a video, and w (m) for a caption. Both sums are matrix products, so gradients for all
    scores are affordable. Ties are ranked as in the code of CE and MMT.
    """

    by_pair = False
    mean_places = True

    def __init__(self, settings: MixtureSettings, regions: int, dim: int) -> None:
        super().__init__()

    def forward(self, images: TokenSets, texts: TokenSets) -> Float[Tensor, "i t"]:
        (videos, there), (captions, weights) = _parts(images), _parts(texts)
        return (videos @ captions.T) / (there @ weights.T).clamp(min=LEAST)


def _parts(sets: TokenSets) -> tuple[Float[Tensor, "b md"], Float[Tensor, "b m"]]:
    """Return the concatenated vectors of all experts times their weights; and the weights."""
    sets = sets.full()
    assert sets.whole is not None
    return (sets.vectors * sets.whole[..., None]).flatten(1), sets.whole
