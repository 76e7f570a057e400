"""VSRN: regions that reason over their graph, and a caption written from them in training. Li et al., ICCV 2019."""

from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from pydantic import Field, PositiveInt

from goalgrid.grid.settings.base import Dropout, Unit
from goalgrid.grid.settings.components import Component, Logged, register
from goalgrid.grid.settings.image_encoders import IMAGE_ENCODER, ImageEncoderSettings
from goalgrid.grid.settings.scorers import FUSION, FusionSettings, ProductSettings
from goalgrid.grid.settings.text_encoders import WordSettings

if TYPE_CHECKING:
    from goalgrid.grid.settings.model import ModelSettings


class RegionGraphSettings(ImageEncoderSettings):
    """VSRN's: projected regions reason over their graph, and a GRU reads them in the order of the data."""

    network: ClassVar[str] = "goalgrid.retrieval.components.vsrn.network:RegionGraph"
    of_regions: ClassVar[bool] = True
    encoder: Literal["region-graph"] = Field(description=IMAGE_ENCODER)
    norm: Literal["regions", "batch"] = Field(
        "regions",
        description="regions: each dimension of the projected regions is brought to unit length over the regions; "
        "batch: a batch norm of the GRU's last state instead",
    )


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


def _fits(model: "ModelSettings") -> str:
    """What of a model the captioner cannot read."""
    needed = {
        "image.encoder = region-graph": isinstance(model.image, RegionGraphSettings),
        "text.encoder = gru": isinstance(model.text, WordSettings),
        "text.boundaries = true": model.text.boundaries,
        "scorer.kind = product": isinstance(model.scorer, ProductSettings),
    }
    lacking = [f"model.{setting}" for setting, present in needed.items() if not present]
    return f"fusion {model.fusion.kind} needs {' and '.join(lacking)}" if lacking else ""


register(
    Component(
        "captioning",
        needs="the captions of a whole batch in one network",
        without="set model.fusion.kind = none",
        excludes=frozenset({"twins", "replicas"}),
        settings=(RegionGraphSettings, CaptioningSettings),
        of=lambda model: f"fusion {model.fusion.kind}" if isinstance(model.fusion, CaptioningSettings) else "",
        fits=_fits,
        logged={
            "captioning": Logged("mean -log p of a caption's words by VSRN's captioner"),
            "grad_norm_captioner": Logged("mean norm of the gradient of VSRN's captioner"),
        },
        network=f"{__name__}.network.Vsrn",
    )
)
