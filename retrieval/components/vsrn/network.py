"""Networks of VSRN: the image encoder, the captioner, and the model that trains both."""

from typing import Any, ClassVar, Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional

from goalgrid.grid.settings.model import ModelSettings
from goalgrid.objectives.objective import Objective
from goalgrid.retrieval.components.vsrn import CaptioningSettings, RegionGraphSettings
from goalgrid.retrieval.encoders import pretrained
from goalgrid.retrieval.encoders.reasoning import Gcn, PaddedGru
from goalgrid.retrieval.model import DualEncoder, EmbeddedBatch
from goalgrid.retrieval.scorers.sets import sent
from goalgrid.retrieval.unit_vectors import unit

UNCOUNTED = -100
"""Target index of words that the loss ignores."""


class RegionGraph(nn.Module):
    """Projected regions, four graph convolutions, then the last state of a GRU. Li et al., ICCV 2019, §3.1 and §3.2."""

    def __init__(
        self, settings: RegionGraphSettings, shape: tuple[int, ...], dim: int, places: pretrained.Places
    ) -> None:
        super().__init__()
        self.project = nn.Linear(shape[-1], dim)
        nn.init.xavier_uniform_(self.project.weight)
        nn.init.zeros_(self.project.bias)
        self.graph = Gcn(dim)
        self.gru = PaddedGru(dim, dim)
        self.norm = nn.BatchNorm1d(dim) if settings.norm == "batch" else None

    def forward(self, images: Float[Tensor, "b n k"]) -> Float[Tensor, "b d"]:
        """Encode region features of any float type."""
        return self.summary(self.regions(images))

    def regions(self, images: Float[Tensor, "b n k"]) -> Float[Tensor, "b n d"]:
        """Return the regions after the graph convolutions."""
        values = self.project(images.to(self.project.weight.dtype)).to(self.project.weight.dtype)
        if self.norm is None:
            values = functional.normalize(values, dim=1)  # each dimension over the regions, as VSRN's code has it
        present = torch.ones(values.shape[:2], dtype=torch.bool, device=values.device)
        return functional.normalize(self.graph(values, present), dim=1)

    def summary(self, regions: Float[Tensor, "b n d"]) -> Float[Tensor, "b d"]:
        last = self.gru.last(regions, torch.full((len(regions),), regions.shape[1]))
        return last if self.norm is None else self.norm(last)


class Captioner(nn.Module):
    """S2VT with attention: one GRU encodes the regions, another generates the caption with teacher forcing.

    Regions have `dim` values. Computes in float32 even under autocast, as `PaddedGru` does.
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
        """Return -log p of the words after `<start>` and one padding after `<end>`: sum of words, mean of captions."""
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
        """Cut captions to at most `max_words` words; a caption that is cut still ends with `<end>`."""
        table = functional.pad(ids, (0, 1))[:, : self.max_words]
        end = ids.gather(1, lengths[:, None] - 1)
        last = table[:, -1:].where(lengths[:, None] <= table.shape[1], end)
        return torch.cat([table[:, :-1], last], dim=1), lengths

    def states(self, regions: Float[Tensor, "b n d"], words: Float[Tensor, "b v e"]) -> Float[Tensor, "b v h"]:
        """Return the decoder's state after each word."""
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


class Vsrn(DualEncoder):
    """`DualEncoder` with a captioner, whose loss is added to the objective's summed loss, as in VSRN."""

    image: RegionGraph
    beside: ClassVar[Literal["sum", "mean"]] = "sum"

    def build_further(self, settings: ModelSettings) -> None:
        given: Any = settings
        text: Any = self.text
        self.captioner = Captioner(given.fusion, settings.dim, text.embed.num_embeddings)

    def embed_batch(self, images: Tensor, texts: Tensor, lengths: Int[Tensor, " b"]) -> EmbeddedBatch:
        """Return unit vectors of images and captions, and the captioner's input: regions and words."""
        regions = self.image.regions(images)
        image = unit(self.image.summary(regions))
        return image, unit(self.text(texts, lengths).to(image.dtype)), (regions, texts)

    def further_losses(
        self, objective: Objective, batch: EmbeddedBatch, lengths: Int[Tensor, " n"], owners: Int[Tensor, " b"]
    ) -> dict[str, Float[Tensor, ""]]:
        """Return the captioner's loss on the pairs."""
        regions, texts, lengths = (part[: len(owners)] for part in (*batch[2], lengths))
        return {"captioning": self.captioner(regions, texts, lengths)}

    def heavy(self) -> list[nn.Module]:
        return [self.image.graph, self.text]
