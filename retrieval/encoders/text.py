"""Text encoders: from token indices below `words`, or features of that width, to one vector before normalisation."""

from typing import Any

import torch
from jaxtyping import Bool, Int, Shaped
from torch import Tensor, nn

from goalgrid.grid.errors import UserError, in_short
from goalgrid.grid.settings.pretrained_networks import RANDOM, Pretrained
from goalgrid.grid.settings.text_encoders import BiGruSettings, BowSettings, GruSettings, TransformerSettings
from goalgrid.retrieval.encoders import learning, pretrained
from goalgrid.retrieval.encoders.calls import caption_call
from goalgrid.retrieval.encoders.calls.sentence_modules import sentence_modules
from goalgrid.retrieval.encoders.pooling import Encoded, pooling
from goalgrid.retrieval.encoders.reasoning import PaddedGru
from goalgrid.retrieval.encoders.sentence_head import SentenceHead
from goalgrid.retrieval.scorers.sets import sent


class Bow(nn.Module):
    """Bag of words: word embeddings, pooled over the caption, and a linear map."""

    def __init__(self, settings: BowSettings, words: int, dim: int, places: pretrained.Places) -> None:
        super().__init__()
        self.embed = _embedding(words, settings.word_dim)
        self.dropout = nn.Dropout(settings.dropout)
        self.project = nn.Linear(settings.word_dim, dim)
        self.pool = pooling(settings, settings.word_dim)

    def forward(self, ids: Int[Tensor, "b n"], lengths: Int[Tensor, " b"]) -> Encoded:
        return self.project(self.pool(self.dropout(self.embed(ids)), present_of(ids, lengths)))


class Gru(nn.Module):
    """Final state of a one-layer GRU. VSE++ §3.2."""

    def __init__(self, settings: GruSettings, words: int, dim: int, places: pretrained.Places) -> None:
        super().__init__()
        self.embed = _embedding(words, settings.word_dim)
        self.dropout = nn.Dropout(settings.dropout)
        self.gru = PaddedGru(settings.word_dim, dim)

    def forward(self, ids: Int[Tensor, "b n"], lengths: Int[Tensor, " b"]) -> Encoded:
        return self.gru.last(self.dropout(self.embed(ids)), lengths)


class BiGru(nn.Module):
    """States of a one-layer bidirectional GRU, averaged over directions and pooled over words."""

    def __init__(self, settings: BiGruSettings, words: int, dim: int, places: pretrained.Places) -> None:
        super().__init__()
        self.embed = _embedding(words, settings.word_dim)
        self.dropout = nn.Dropout(settings.dropout)
        self.gru = PaddedGru(settings.word_dim, dim, bidirectional=True)
        self.pool = pooling(settings, dim)

    def forward(self, ids: Int[Tensor, "b n"], lengths: Int[Tensor, " b"]) -> Encoded:
        forward, backward = self.gru.states(self.dropout(self.embed(ids)), lengths).chunk(2, dim=-1)
        return self.pool((forward + backward) / 2, present_of(ids, lengths))


class Transformer(nn.Module):
    """Output of a `transformers` network, projected and pooled. VSE-infinity §4.

    The output is one state per token, including special tokens, or one vector. If it is precomputed, this module
    contains no network.
    """

    def __init__(self, settings: TransformerSettings, words: int, dim: int, places: pretrained.Places) -> None:
        super().__init__()
        backbone = None if settings.feature_network else text_network(settings, words, places)
        self.project = pretrained.head(settings.head, words if backbone is None else width_of(backbone, settings), dim)
        if settings.init == "xavier" and isinstance(self.project, nn.Linear):
            nn.init.xavier_uniform_(self.project.weight)
            nn.init.zeros_(self.project.bias)
        self.pool = pooling(settings, dim)
        self.backbone, self.output, self.frozen = backbone, settings.output, settings.frozen
        self.partial = settings.trains is not None
        if backbone is not None:
            backbone.requires_grad_(not settings.frozen)
            learning.hold(backbone, settings.trains, "model.text.trains")

    def forward(self, captions: Tensor, lengths: Int[Tensor, " b"]) -> Encoded:
        """Encode token indices (b, n), or precomputed features of a frozen network, (b, k) or (b, n, k)."""
        if self.backbone is not None:
            with torch.set_grad_enabled(torch.is_grad_enabled() and not self.frozen):
                captions = features_of(self.backbone, self.output, captions, lengths)
        projected = self.project(captions.float())
        return projected if captions.ndim == 2 else self.pool(projected, present_of(captions, lengths))

    def train(self, mode: bool = True) -> "Transformer":
        """Set the mode; a frozen network stays in evaluation mode, without dropout."""
        super().train(mode)
        if self.backbone is not None and self.frozen:
            self.backbone.eval()
        elif self.backbone is not None and self.partial:
            learning.calm(self.backbone)
        return self


def text_network(settings: Pretrained, words: int, places: pretrained.Places) -> nn.Module:
    """Load the text network for `features_of`; with random weights, its vocabulary has `words` entries."""
    sizes = {"vocab_size": words} if settings.weights == RANDOM else {}
    projected = isinstance(settings, TransformerSettings) and settings.output == "projected"
    network = pretrained.network(settings, places, part="text_model", projected=projected, **sizes)
    config: Any = network.config
    kind = str(config.model_type)
    if hasattr(network, "encoder") and hasattr(network, "decoder"):
        raise UserError(
            f"weights {settings.weights!r} have model type {kind!r}, an encoder-decoder that generates text. Use an "
            "encoder, e.g. google-bert/bert-base-uncased."
        )
    if (fill := caption_call.fill_of(settings, places)) is not None:
        config.pad_token_id = fill
    if projected and kind not in (*CLIP, *POOLED):
        modules = sentence_modules(pretrained.folder_of(settings, places), settings.weights)
        if modules is None:
            raise UserError(
                "model.text.output = projected needs a text network with a sentence embedding: one trained with an "
                f"image network, like CLIP's or SigLIP's, or a folder with modules.json; {settings.weights!r}, of "
                f"model type {kind!r}, has none. Set model.text.output = states."
            )
        network.add_module("sentence", SentenceHead(modules, int(config.hidden_size)))
    if settings.weights != RANDOM:
        _check_call(network, settings.weights, "projected" if projected else "states")
    return network


def _check_call(network: Any, weights: str, output: str) -> None:
    """Raise a UserError if a network cannot be called with captions alone; tried on two tokens."""
    try:
        with torch.no_grad():
            features_of(network, output, torch.ones(1, 2, dtype=torch.int64), torch.tensor([2]))
    except Exception as error:  # networks that are called in another way raise many kinds of errors
        raise UserError(
            f"weights {weights!r} have model type {network.config.model_type!r}, which cannot be called with captions "
            f"alone: {in_short(error)}. Choose another text network."
        ) from error


def width_of(network: Any, settings: TransformerSettings) -> int:
    """Return the width of the feature vectors that `features_of` returns."""
    if settings.output == "projected" and isinstance(sentence := getattr(network, "sentence", None), SentenceHead):
        return sentence.width
    last = getattr(network, "projection" if network.config.model_type in CLIP else "head", None)
    projected = settings.output == "projected" and isinstance(last, nn.Linear)
    return int(last.out_features if projected and last is not None else network.config.hidden_size)


def features_of(network: Any, output: str, ids: Int[Tensor, "b n"], lengths: Int[Tensor, " b"]) -> Tensor:
    """Return a text network's output for captions: one state per token (b, n, k), or its embedding (b, k).

    CLIP's embedding is the state of the last token. SigLIP's is the state at the last position: captions are padded to
    the length used in its training, and the network attends to the padding. TIPSv2's is a mean, and that of a
    sentence-transformers folder is determined by its modules.
    """
    present = present_of(ids, lengths)
    if network.config.model_type in caption_call.FILLED:
        fill, room = network.config.pad_token_id, network.config.max_position_embeddings - ids.shape[1]
        whole = nn.functional.pad(ids.where(present, fill), (0, room), value=fill)
        given = network(input_ids=whole)
        filled: Tensor = given.pooler_output if output == "projected" else given.last_hidden_state[:, : ids.shape[1]]
        return filled
    given = network(input_ids=ids, attention_mask=present.long())
    states: Tensor = given.last_hidden_state
    if output == "states":
        return states
    if hasattr(network, "sentence"):
        sentence: Tensor = network.sentence(states, present)
        return sentence
    if network.config.model_type in POOLED:
        pooled: Tensor = given.pooler_output
        return pooled
    last = states[torch.arange(len(states), device=states.device), sent(lengths, states.device) - 1]
    projected: Tensor = network.projection(last) if hasattr(network, "projection") else last
    return projected


POOLED = (*caption_call.FILLED, "tipsv2_text_model")
"""Model types of text networks that return their embedding as `pooler_output`."""
CLIP = ("clip_text_model", "metaclip_2_text_model", "aimv2_text_model")
"""Model types of text networks whose embedding is the state of the last token, projected to the joint space."""


def _embedding(words: int, dim: int) -> nn.Embedding:
    """Build word embeddings, initialised uniformly in ±0.1 as in VSE++."""
    embedding = nn.Embedding(words, dim, padding_idx=0)
    nn.init.uniform_(embedding.weight, -0.1, 0.1)
    return embedding


def present_of(ids: Shaped[Tensor, "b n *k"], lengths: Int[Tensor, " b"]) -> Bool[Tensor, "b n"]:
    """Return the mask of tokens, as opposed to padding, for captions of these lengths."""
    return torch.arange(ids.shape[1], device=ids.device) < sent(lengths, ids.device)[:, None]
