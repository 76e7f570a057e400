"""BERT layers with BERT's weight names, for X-VLM's text encoder and its fusion encoder.

The fusion encoder's layers also attend to image tokens of a different width, which `transformers` does not support.
"""

from typing import Any

from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention

from goalgrid.grid.errors import UserError
from goalgrid.retrieval.components.xvlm.settings import BertLayersSettings
from goalgrid.retrieval.encoders.pretrained import Places
from goalgrid.retrieval.encoders.reasoning import start_as_bert
from goalgrid.retrieval.encoders.text import present_of

EPSILON = 1e-12
"""Epsilon of all layer norms, as in BERT."""
POSITIONS = 512
"""Maximum caption length of BERT, in tokens."""

Keys = tuple[Float[Tensor, "b h m k"], Float[Tensor, "b h m k"]]
"""Keys and values per head."""


class Attention(nn.Module):
    """Multi-head attention to a context of width `context`, then a linear layer, residual sum and layer norm."""

    def __init__(self, width: int, heads: int, context: int, dropout: float) -> None:
        super().__init__()
        self.heads = heads
        self.self = nn.ModuleDict(
            {"query": nn.Linear(width, width), "key": nn.Linear(context, width), "value": nn.Linear(context, width)}
        )
        self.output = _output(width, width)
        self.dropout = nn.Dropout(dropout)

    def keys(self, context: Float[Tensor, "b m c"]) -> Keys:
        return self._by_head("key", context), self._by_head("value", context)

    def forward(
        self, states: Float[Tensor, "b n d"], keys: Keys, mask: Bool[Tensor, "b 1 1 m"] | None = None
    ) -> Float[Tensor, "b n d"]:
        drop = self.dropout.p if self.training else 0.0
        attended = scaled_dot_product_attention(self._by_head("query", states), *keys, attn_mask=mask, dropout_p=drop)
        return self.after(states, attended.transpose(1, 2).flatten(2))

    def after(self, states: Float[Tensor, "*b d"], attended: Float[Tensor, "*b d"]) -> Float[Tensor, "*b d"]:
        return self.output["LayerNorm"](states + self.dropout(self.output["dense"](attended)))

    def _by_head(self, name: str, tokens: Float[Tensor, "b n c"]) -> Float[Tensor, "b h n k"]:
        return self.self[name](tokens).unflatten(-1, (self.heads, -1)).transpose(1, 2)


class BertLayer(nn.Module):
    """A BERT layer; if `context` is given, cross-attention to a context of that width follows self-attention."""

    def __init__(self, settings: BertLayersSettings, context: int | None = None) -> None:
        super().__init__()
        width, heads, dropout = settings.width, settings.heads, settings.dropout
        self.attention = Attention(width, heads, width, dropout)
        if context is not None:
            self.crossattention = Attention(width, heads, context, dropout)
        self.intermediate = nn.ModuleDict({"dense": nn.Linear(width, settings.hidden)})
        self.output = _output(settings.hidden, width)
        self.dropout = nn.Dropout(dropout)

    def forward(
        self, states: Float[Tensor, "b n d"], mask: Bool[Tensor, "b 1 1 n"], context: Keys | None = None
    ) -> Float[Tensor, "b n d"]:
        """Return the next states; `context` is the result of `crossattention.keys`."""
        states = self.attention(states, self.attention.keys(states), mask)
        if context is not None:
            states = self.crossattention(states, context)
        return self.mixed(states)

    def mixed(self, states: Float[Tensor, "*b d"]) -> Float[Tensor, "*b d"]:
        """Apply the MLP at the end of the layer to each state separately."""
        hidden = nn.functional.gelu(self.intermediate["dense"](states))
        return self.output["LayerNorm"](states + self.dropout(self.output["dense"](hidden)))


class BertLayers(nn.Module):
    """Token and position embeddings, and the layers of the text encoder."""

    def __init__(self, settings: BertLayersSettings, words: int) -> None:
        super().__init__()
        width = settings.width
        self.embeddings = nn.ModuleDict(
            {
                "word_embeddings": nn.Embedding(words, width, padding_idx=0),
                "position_embeddings": nn.Embedding(POSITIONS, width),
                "token_type_embeddings": nn.Embedding(2, width),
                "LayerNorm": nn.LayerNorm(width, eps=EPSILON),
            }
        )
        self.dropout = nn.Dropout(settings.dropout)
        self.layers = nn.ModuleList(BertLayer(settings) for _ in range(settings.layers))
        start_as_bert(self)

    def forward(self, ids: Int[Tensor, "b n"], lengths: Int[Tensor, " b"]) -> Float[Tensor, "b n d"]:
        """Return one state per token; padding is masked. Raise UserError if a caption exceeds `POSITIONS` tokens."""
        if ids.shape[1] > POSITIONS:
            raise UserError(
                f"a caption has {ids.shape[1]} tokens, but BERT reads at most {POSITIONS}: lower dataset.max_words."
            )
        tables: Any = self.embeddings
        words, positions = tables["word_embeddings"](ids), tables["position_embeddings"].weight[: ids.shape[1]]
        states = self.dropout(tables["LayerNorm"](words + positions + tables["token_type_embeddings"].weight[0]))
        mask = present_of(ids, lengths)[:, None, None]
        for layer in self.layers:
            states = layer(states, mask)
        return states


class BertEncoder(nn.Module):
    """X-VLM's text encoder: a linear layer on the first token's state; the fusion encoder reads all `states`."""

    def __init__(self, settings: BertLayersSettings, words: int, dim: int, places: Places) -> None:
        super().__init__()
        self.backbone = BertLayers(settings, words)
        self.project = nn.Linear(settings.width, dim)

    def states(self, ids: Int[Tensor, "b n"], lengths: Int[Tensor, " b"]) -> Float[Tensor, "b n k"]:
        return self.backbone(ids, lengths)

    def forward(self, ids: Int[Tensor, "b n"], lengths: Int[Tensor, " b"]) -> Float[Tensor, "b d"]:
        return self.project(self.states(ids, lengths)[:, 0])


def _output(given: int, width: int) -> nn.ModuleDict:
    return nn.ModuleDict({"dense": nn.Linear(given, width), "LayerNorm": nn.LayerNorm(width, eps=EPSILON)})
