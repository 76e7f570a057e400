"""Settings of VSRN: its image encoder, and the captioner that learns beside the joint space."""

from typing import Annotated, ClassVar, Literal

from pydantic import Field, PositiveInt

from goalgrid.grid.settings.base import Dropout, Unit
from goalgrid.grid.settings.image_encoders import IMAGE_ENCODER, ImageEncoderSettings
from goalgrid.grid.settings.scorers import FUSION, FusionSettings


class RegionGraphSettings(ImageEncoderSettings):
    """VSRN's: projected regions reason over their graph, and a GRU reads them in the order of the data."""

    network: ClassVar[str] = "goalgrid.retrieval.parts.vsrn.network.RegionGraph"
    of_regions: ClassVar[bool] = True
    encoder: Literal["region-graph"] = Field(description=IMAGE_ENCODER)
    norm: Literal["regions", "batch"] = Field(
        "regions",
        description="regions: each dimension of the projected regions is brought to unit length over the regions; "
        "batch: a batch norm of the GRU's last state instead",
    )

    @property
    def view(self) -> None:
        return None


class CaptioningSettings(FusionSettings):
    """VSRN's captioner: it writes the caption of an image from its regions; its loss is added in training."""

    kind: Literal["captioning"] = Field(description=FUSION)
    hidden: Annotated[PositiveInt, Unit("values")] = Field(512, description="width of the captioner's two GRUs")
    word_dim: Annotated[PositiveInt, Unit("values")] = Field(
        300, description="width of the captioner's word embeddings"
    )
    max_words: Annotated[int, Field(ge=2), Unit("words")] = Field(
        60, description="longer captions are cut for the captioner, <start> and <end> included"
    )
    dropout: Dropout = Field(0.2, description="share of the values set to zero before each of the captioner's GRUs")
