"""VSRN's captioner, S2VT with attention: a caption is written word by word from the regions of its image."""

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional

from goalgrid.retrieval.encoders.reasoning import PaddedGru
from goalgrid.retrieval.parts.vsrn.settings import CaptioningSettings
from goalgrid.retrieval.scorers.sets import sent

UNCOUNTED = -100
"""Stands in the place of a word that no loss counts."""


class Captioner(nn.Module):
    """One GRU reads the regions, and another writes the caption, whose words it is told as it goes.

    Regions are `dim` wide. It computes in float32 whatever autocast says, as `PaddedGru` does.
    """

    def __init__(self, settings: CaptioningSettings, dim: int, words: int) -> None:
        super().__init__()
        hidden = settings.hidden
        self.project = nn.Linear(dim, hidden)
        self.reader = PaddedGru(hidden, hidden)
        self.embed = nn.Embedding(words, settings.word_dim)
        self.attend = nn.Linear(2 * hidden, hidden)
        self.energy = nn.Linear(hidden, 1, bias=False)
        self.writer = nn.GRUCell(settings.word_dim + hidden, hidden)
        self.out = nn.Linear(hidden, words)
        self.dropout = nn.Dropout(settings.dropout)
        self.max_words = settings.max_words
        for layer in (self.project, self.out):
            nn.init.xavier_normal_(layer.weight)

    def forward(
        self, regions: Float[Tensor, "b n d"], ids: Int[Tensor, "b w"], lengths: Int[Tensor, " b"]
    ) -> Float[Tensor, ""]:
        """-log p of the words after `<start>` and of the end after `<end>`: a sum over words, a mean over captions."""
        table, lengths = self.cut(ids, sent(lengths, ids.device))
        counted = torch.arange(1, table.shape[1], device=ids.device) <= lengths[:, None]
        with torch.autocast(regions.device.type, enabled=False):
            logits = self.out(self.states(regions, self.embed(table[:, :-1])))
            targets = table[:, 1:].where(counted, UNCOUNTED)
            total = functional.cross_entropy(
                logits.flatten(0, 1), targets.flatten(), ignore_index=UNCOUNTED, reduction="sum"
            )
        return total / len(ids)

    def cut(self, ids: Int[Tensor, "b w"], lengths: Int[Tensor, " b"]) -> tuple[Int[Tensor, "b v"], Int[Tensor, " b"]]:
        """Captions and the padding after them, at most `max_words` wide; a caption that is cut ends with `<end>`."""
        table = functional.pad(ids, (0, 1))[:, : self.max_words]
        end = ids.gather(1, lengths[:, None] - 1)
        last = table[:, -1:].where(lengths[:, None] <= table.shape[1], end)
        return torch.cat([table[:, :-1], last], dim=1), lengths

    def states(self, regions: Float[Tensor, "b n d"], words: Float[Tensor, "b v e"]) -> Float[Tensor, "b v h"]:
        """The writer's state after each word."""
        count, size = regions.shape[:2]
        memory = self.reader.states(self.dropout(self.project(regions)), torch.full((count,), size))
        state, states = memory[:, -1], list[Tensor]()
        of_memory, of_state = self.attend.weight.chunk(2, dim=1)
        keys = functional.linear(memory, of_memory, self.attend.bias)
        for word in words.unbind(1):
            energies = self.energy(torch.tanh(keys + functional.linear(state, of_state)[:, None]))
            context = (energies.softmax(dim=1) * memory).sum(dim=1)
            state = self.writer(self.dropout(torch.cat([word, context], dim=1)), state)
            states.append(state)
        return torch.stack(states, dim=1)
