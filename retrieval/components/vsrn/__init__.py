"""VSRN: graph reasoning over regions, with a captioning loss in training. Li et al., ICCV 2019."""

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
    """VSRN's image encoder: graph convolutions over projected regions, then a GRU in the order of the data."""

    network: ClassVar[str] = "goalgrid.retrieval.components.vsrn.network:RegionGraph"
    of_regions: ClassVar[bool] = True
    encoder: Literal["region-graph"] = Field(description=IMAGE_ENCODER)
    norm: Literal["regions", "batch"] = Field(
        "regions",
        description="regions: L2-normalise each dimension of the projected regions over the regions; "
        "batch: apply batch norm to the GRU's last state instead",
    )


class CaptioningSettings(FusionSettings):
    """VSRN's captioner, which generates an image's caption from its regions; its loss is added in training."""

    kind: Literal["captioning"] = Field(description=FUSION)
    hidden: Annotated[PositiveInt, Unit("values")] = Field(512, description="hidden size of the captioner's two GRUs")
    word_dim: Annotated[PositiveInt, Unit("values")] = Field(300, description="size of the captioner's word embeddings")
    max_words: Annotated[int, Field(ge=2), Unit("words")] = Field(
        60, description="maximum caption length for the captioner, including <start> and <end>; longer captions are cut"
    )
    dropout: Dropout = Field(0.2, description="dropout rate before each of the captioner's GRUs")


def _fits(model: "ModelSettings") -> str:
    """Return what the captioner needs that this model lacks; empty if it fits."""
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
            "captioning": Logged("mean negative log-likelihood of a caption under VSRN's captioner"),
            "grad_norm_captioner": Logged("mean gradient norm of VSRN's captioner"),
        },
        network=f"{__name__}.network.Vsrn",
    )
)
