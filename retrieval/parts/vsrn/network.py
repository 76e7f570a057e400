"""The networks of VSRN: the image encoder, and the model whose captioner learns beside the joint space."""

from typing import Any, ClassVar, Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from goalgrid.grid.settings.model import ModelSettings
from goalgrid.objectives.objective import Objective
from goalgrid.retrieval.encoders import pretrained
from goalgrid.retrieval.encoders.reasoning import Gcn, PaddedGru
from goalgrid.retrieval.model import Vse
from goalgrid.retrieval.parts.vsrn.captioner import Captioner
from goalgrid.retrieval.parts.vsrn.settings import RegionGraphSettings
from goalgrid.retrieval.unit_vectors import unit


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
        """From features of any float type."""
        return self.summary(self.regions(images))

    def regions(self, images: Float[Tensor, "b n k"]) -> Float[Tensor, "b n d"]:
        """The regions after the graph convolutions."""
        values = self.project(images.to(self.project.weight.dtype)).to(self.project.weight.dtype)
        if self.norm is None:
            values = _unit_over_regions(values)
        present = torch.ones(values.shape[:2], dtype=torch.bool, device=values.device)
        return _unit_over_regions(self.graph(values, present))

    def summary(self, regions: Float[Tensor, "b n d"]) -> Float[Tensor, "b d"]:
        last = self.gru.last(regions, torch.full((len(regions),), regions.shape[1]))
        return last if self.norm is None else self.norm(last)


def _unit_over_regions(values: Float[Tensor, "b n d"]) -> Float[Tensor, "b n d"]:
    """Each dimension divided by its length over the regions of the image, as VSRN's code has it."""
    return nn.functional.normalize(values, dim=1)


class Vsrn(Vse):
    """`Vse` with a captioner, whose loss is added to the sum of the objective's, as VSRN has it."""

    image: RegionGraph
    beside: ClassVar[Literal["sum", "mean"]] = "sum"

    def build_further(self, settings: ModelSettings) -> None:
        given: Any = settings
        text: Any = self.text
        self.captioner = Captioner(given.fusion, settings.dim, text.embed.num_embeddings)

    def embed_batch(
        self, images: Tensor, texts: Tensor, lengths: Int[Tensor, " b"]
    ) -> tuple[Float[Tensor, "b d"], Float[Tensor, "b d"], tuple[Tensor, ...]]:
        """Unit vectors of images and of their captions; and what the captioner reads: regions and words."""
        regions = self.image.regions(images)
        image = unit(self.image.summary(regions))
        return image, unit(self.text(texts, lengths).to(image.dtype)), (regions, texts)

    def further_losses(
        self,
        objective: Objective,
        image: Float[Tensor, "n d"],
        text: Float[Tensor, "n d"],
        seen: tuple[Tensor, ...],
        lengths: Int[Tensor, " n"],
        owners: Int[Tensor, " b"],
    ) -> dict[str, Float[Tensor, ""]]:
        """The loss of the captioner on the pairs."""
        regions, texts, lengths = (part[: len(owners)] for part in (*seen, lengths))
        return {"captioning": self.captioner(regions, texts, lengths)}

    def heavy(self) -> list[nn.Module]:
        return [self.image.graph, self.text]
