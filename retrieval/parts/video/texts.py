"""The text side of CE and MMT: a gated vector of a caption for each expert, and how much each expert counts."""

import torch
from jaxtyping import Int
from torch import Tensor, nn

from goalgrid.retrieval.encoders.pretrained import Places
from goalgrid.retrieval.encoders.text import features_of, present_of, text_network
from goalgrid.retrieval.parts.video.gated import GatedUnit, NetVlad
from goalgrid.retrieval.parts.video.settings import ExpertTextSettings
from goalgrid.retrieval.scorers.sets import Sets


class ExpertTexts(nn.Module):
    """A gated vector for each expert, and the share of each expert in the score. CE, MMT.

    A caption is what NetVLAD makes of its states, filled up to a fixed number, or the state of its first token.
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

    def forward(self, ids: Tensor, lengths: Int[Tensor, " b"]) -> Sets:
        """From indices (b, n), or from the states (b, n, k) that a frozen network gave before."""
        states = ids.float() if self.backbone is None else features_of(self.backbone, "states", ids, lengths)
        if self.pool is None:
            caption = states[:, 0]
        else:
            states = (states * present_of(states, lengths)[..., None])[:, : self.tokens]
            caption = self.pool(nn.functional.pad(states, (0, 0, 0, self.tokens - states.shape[1])))
        vectors = torch.stack([unit(caption) for unit in self.units], dim=1)
        shares = self.weigh(self.dropout(caption)).softmax(-1)
        return Sets(vectors, torch.full((len(vectors),), len(self.units)), shares)
