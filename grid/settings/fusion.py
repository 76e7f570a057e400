"""What looks at an image and a caption together, beside the two encoders: nothing, or what a part registers."""

from typing import Annotated, Literal

from pydantic import Field

from goalgrid.grid.settings.base import Settings
from goalgrid.grid.settings.pretrained_networks import PretrainedFile

FUSION = "what looks at an image and a caption together; another choice drops the settings of the one before"


class FusionSettings(Settings):
    """What the settings of every kind have."""

    kind: str

    @property
    def file(self) -> PretrainedFile | None:
        """The file of weights with which the whole model begins; None: its parts begin by themselves."""
        return None

    @property
    def ranked_anew(self) -> int:
        """How many answers of a query a second stage ranks anew in the test; 0: there is no second stage."""
        return 0


class NoFusionSettings(FusionSettings):
    """An image and a caption are compared in the joint space alone."""

    kind: Literal["none"] = Field(default="none", description=FUSION)


AnyFusion = Annotated[NoFusionSettings | FusionSettings, Field(discriminator="kind")]
