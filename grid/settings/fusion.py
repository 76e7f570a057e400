"""Settings of the fusion encoder: what looks at an image and a caption together, beside the two encoders."""

from typing import Annotated, Literal

from pydantic import Field, PositiveInt

from goalgrid.grid.settings.base import Settings, Unit
from goalgrid.grid.settings.pretrained_networks import RANDOM, PretrainedFile, WeightsName

FUSION = "what looks at an image and a caption together; another choice drops the settings of the one before"


class NoFusionSettings(Settings):
    """No fusion encoder: an image and a caption are compared in the joint space alone."""

    kind: Literal["none"] = Field(default="none", description=FUSION)

    @property
    def file(self) -> None:
        return None


class XvlmFusionSettings(Settings):
    """X-VLM's: layers of BERT that attend to the image; the widths are those of the text encoder."""

    kind: Literal["x-vlm"] = Field(description=FUSION)
    weights: WeightsName = Field(
        "x-vlm", description="weights of the whole model: X-VLM's own file, given by --weights x-vlm=FILE; or random"
    )
    layers: Annotated[PositiveInt, Unit("layers")] = Field(6, description="layers of the fusion encoder")
    candidates: Annotated[int, Field(ge=10), Unit("candidates")] = Field(
        256,
        description="how many answers of a query the fusion encoder ranks anew in the test: COCO 256, Flickr30K 128",
    )

    @property
    def file(self) -> PretrainedFile | None:
        """The file of weights with which the whole model begins; None: it begins at random."""
        return None if self.weights == RANDOM else PretrainedFile(weights=self.weights, architecture={})


FusionSettings = Annotated[NoFusionSettings | XvlmFusionSettings, Field(discriminator="kind")]
