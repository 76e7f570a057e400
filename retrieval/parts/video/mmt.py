"""MMT, the multi-modal transformer: the vectors of all experts attend to one another. Gabeur et al., ECCV 2020."""

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn.functional import gelu, scaled_dot_product_attention

from goalgrid.retrieval.encoders.pretrained import Places
from goalgrid.retrieval.parts.video.settings import MmtSettings
from goalgrid.retrieval.parts.video.videos import unpacked
from goalgrid.retrieval.scorers.sets import Sets

PLACES = 32
"""Embeddings of time: 0: the whole video; 1: an unknown time; then one for each second, the last for all later."""
DEVIATION, EPS = 0.02, 1e-12
"""BERT's: of the first weights, and in its layer norms."""


class MultiModalTransformer(nn.Module):
    """A vector for each expert: the transformer's output at the expert's first place.

    The sequence is a vector of zeros and, for each expert, the largest values of all its vectors, then its tokens.
    Nothing attends to an expert that saw nothing, but the output at its first place counts in the score.
    """

    def __init__(self, settings: MmtSettings, shape: tuple[int, ...], dim: int, places: Places) -> None:
        super().__init__()
        self.reads = settings.reads
        self.project = nn.ModuleList(nn.Linear(read.width, dim) for read in self.reads)
        self.expert = nn.Embedding(1 + len(self.reads), dim)
        self.time = nn.Embedding(PLACES, dim)
        self.norm, self.dropout = nn.LayerNorm(dim, eps=EPS), nn.Dropout(settings.dropout)
        self.layers = nn.ModuleList(MmtLayer(settings, dim) for _ in range(settings.layers))
        own = [module for part in (self.expert, self.time, self.layers) for module in part.modules()]
        for module in own:
            if isinstance(module, nn.Linear | nn.Embedding):
                nn.init.normal_(module.weight, std=DEVIATION)
            if isinstance(module, nn.Linear):
                nn.init.zeros_(module.bias)

    def forward(self, videos: Float[Tensor, "b values"]) -> Sets:
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
        return Sets(vectors, torch.full((len(vectors),), len(wholes)), torch.ones_like(vectors[..., 0]))


def place_of(times: Float[Tensor, "*b"]) -> Int[Tensor, "*b"]:
    """The embedding of a second: that of the time rounded down, after those of no time; 1 where it is unknown.

    >>> place_of(torch.tensor([-1.0, 0.0, 0.9, 1.5, 100.0])).tolist()
    [1, 2, 2, 3, 31]
    """
    return torch.where(times < 0, 1, (times + 2).floor()).long().clamp(max=PLACES - 1)


class MmtLayer(nn.Module):
    """A layer of BERT: attention, then two linear layers, each added to its input and then normalised."""

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
