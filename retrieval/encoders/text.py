"""Text encoders: from word indices to one vector each, before normalisation."""

from collections.abc import Callable
from typing import Any

import torch
from jaxtyping import Bool, Int
from torch import Tensor, nn

from grid.settings.encoders import RANDOM, BiGruSettings, BowSettings, GruSettings, TransformerSettings
from retrieval.encoders import own, pretrained
from retrieval.encoders.pooling import Encoded, pooling
from retrieval.encoders.recurrent import PaddedGru


class Bow(nn.Module):
    """Word embeddings, pooled, then linear: a caption is the set of its words."""

    def __init__(self, settings: BowSettings, words: int, dim: int) -> None:
        super().__init__()
        self.embed = _embedding(words, settings.word_dim)
        self.dropout = nn.Dropout(settings.dropout)
        self.project = nn.Linear(settings.word_dim, dim)
        self.pool = pooling(settings.pooling, settings.word_dim, settings.pool_k)

    def forward(self, ids: Int[Tensor, "b n"], lengths: Int[Tensor, " b"]) -> Encoded:
        return self.project(self.pool(self.dropout(self.embed(ids)), _present(ids, lengths)))


class Gru(nn.Module):
    """Last state of a one-layer GRU. VSE++ §3.2."""

    def __init__(self, settings: GruSettings, words: int, dim: int) -> None:
        super().__init__()
        self.embed = _embedding(words, settings.word_dim)
        self.dropout = nn.Dropout(settings.dropout)
        self.gru = PaddedGru(settings.word_dim, dim)

    def forward(self, ids: Int[Tensor, "b n"], lengths: Int[Tensor, " b"]) -> Encoded:
        return self.gru.last(self.dropout(self.embed(ids)), lengths)


class BiGru(nn.Module):
    """States of a one-layer GRU in both directions, averaged over directions and pooled over words."""

    def __init__(self, settings: BiGruSettings, words: int, dim: int) -> None:
        super().__init__()
        self.embed = _embedding(words, settings.word_dim)
        self.dropout = nn.Dropout(settings.dropout)
        self.gru = PaddedGru(settings.word_dim, dim, bidirectional=True)
        self.pool = pooling(settings.pooling, dim, settings.pool_k)

    def forward(self, ids: Int[Tensor, "b n"], lengths: Int[Tensor, " b"]) -> Encoded:
        forward, backward = self.gru.states(self.dropout(self.embed(ids)), lengths).chunk(2, dim=-1)
        return self.pool((forward + backward) / 2, _present(ids, lengths))


class Transformer(nn.Module):
    """States of a `transformers` network, special tokens included, projected and pooled. VSE-infinity §4."""

    def __init__(self, settings: TransformerSettings, words: int, dim: int, places: pretrained.Places) -> None:
        super().__init__()
        sizes = {"vocab_size": words} if settings.weights == RANDOM else {}
        self.backbone = pretrained.network(settings, places, part="text_model", **sizes)
        self.backbone.requires_grad_(not settings.frozen)
        self.frozen = settings.frozen
        self.project = nn.Linear(int(self.backbone.config.hidden_size), dim)  # type: ignore[union-attr, arg-type]
        if settings.init == "xavier":
            nn.init.xavier_uniform_(self.project.weight)
            nn.init.zeros_(self.project.bias)
        self.pool = pooling(settings.pooling, dim, settings.pool_k)

    def forward(self, ids: Int[Tensor, "b n"], lengths: Int[Tensor, " b"]) -> Encoded:
        present = _present(ids, lengths)
        with torch.set_grad_enabled(torch.is_grad_enabled() and not self.frozen):
            states = self.backbone(input_ids=ids, attention_mask=present.long()).last_hidden_state
        return self.pool(self.project(states), present)

    def train(self, mode: bool = True) -> "Transformer":
        """Frozen, the network stays in evaluation, without dropout."""
        super().train(mode)
        if self.frozen:
            self.backbone.eval()
        return self


def _embedding(words: int, dim: int) -> nn.Embedding:
    """Word embeddings, uniform in ±0.1, as VSE++ starts them."""
    embedding = nn.Embedding(words, dim, padding_idx=0)
    nn.init.uniform_(embedding.weight, -0.1, 0.1)
    return embedding


def _present(ids: Int[Tensor, "b n"], lengths: Int[Tensor, " b"]) -> Bool[Tensor, "b n"]:
    return torch.arange(ids.shape[1], device=ids.device) < lengths.to(ids.device, non_blocking=True)[:, None]


TEXT_ENCODERS: dict[str, Callable[[Any, int, int, pretrained.Places], nn.Module]] = {
    "bow": lambda settings, words, dim, places: Bow(settings, words, dim),
    "gru": lambda settings, words, dim, places: Gru(settings, words, dim),
    "bigru": lambda settings, words, dim, places: BiGru(settings, words, dim),
    "transformer": Transformer,
    "own": lambda settings, words, dim, places: own.text_encoder(settings, words, dim),
}
"""Each encoder by the name of its settings class in `grid/settings/encoders.py`, for indices below `words`."""
