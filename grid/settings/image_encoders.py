"""Settings of the image encoders, which embed images."""

from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import Field, PositiveInt, StrictBool, model_validator

from goalgrid.grid.settings.base import Dropout, IdentityDefault, ReadWhere, Settings, Unit, told_once
from goalgrid.grid.settings.components import PartRead
from goalgrid.grid.settings.image_views import Augmentation, Filter, Framing, Resampling, View
from goalgrid.grid.settings.poolings import HAS_HEAD, SEVERAL, PoolingSettings
from goalgrid.grid.settings.pretrained_networks import PUBLISHED, TRAINS, Call, Pretrained, Trains
from goalgrid.grid.settings.user_modules import UserModuleKind, UserModuleSettings

HeadName = Literal["linear", "linear-mlp", "mlp", "residual-mlp"]
MLP_HEADS: tuple[HeadName, ...] = ("linear-mlp", "mlp", "residual-mlp")
DropRule = Literal["each", "graded"]
Margin = Annotated[float, Field(ge=1)] | None
Published = Literal["published"]
Deviation = Annotated[float, Field(gt=0)]
Statistics = (
    Literal["imagenet", "clip", "half", "caffe", "none", "published"]
    | tuple[float, float, float, Deviation, Deviation, Deviation]
)

IMAGE_ENCODER = "image encoder; changing it resets the previous encoder's settings"
CALLED = (
    "published: read framing, margin, filter and statistics from the weights' preprocessor_config.json unless they are "
    "set here; plain: use their defaults"
)
FRAMED = "evaluation view. square: the whole picture, squeezed; centre-crop: its centre, with its aspect ratio kept"
MARGIN = (
    "resize the shorter side to margin x size, rounded to whole pixels, before the centre crop; 1: the crop covers the "
    "whole shorter side, as in CLIP's preprocessing; none: 256 / 224, not rounded"
)
AUGMENTED = (
    "training view. resized-crop: VSE++'s random resized crop; scale-crop: VSE-infinity's crop, which keeps the "
    "aspect ratio; side-crop: draws the two sides independently; rand-augment: X-VLM's larger crop with RandAugment"
)

_MLP = ReadWhere(lambda part, _: part.head in MLP_HEADS, "a head with an MLP")
_LEARNS = ReadWhere(lambda part, _: not part.frozen, "frozen = false")
_CROPS = ReadWhere(
    lambda part, _: part.frozen and (part.view.random or part.crops == "online"),
    "frozen = true, and random views or crops = online",
)
_CROPPED = ReadWhere(lambda part, _: part.view is not None and part.framing != "square", "framing = centre-crop")
_PICTURES = ReadWhere(lambda part, _: part.view is not None, 'an encoder on = "pictures"')
_VIEWS = ReadWhere(lambda part, _: not part.frozen or part.crops != 1, "frozen = false, or crops above 1")


class HeadSettings(PoolingSettings):
    """Settings of the head on an image's input vectors: a single vector, or one per region or grid cell."""

    normalize: StrictBool = Field(True, description="L2-normalize each input vector first, as in VSE++")
    hidden: Annotated[PositiveInt, Unit("values"), IdentityDefault(512), _MLP] = Field(
        512, description="hidden size of the head's MLP; default: half of model.dim"
    )
    init: Annotated[Literal["xavier", "torch"], IdentityDefault("torch"), HAS_HEAD] = Field(
        "xavier", description="initialisation of the projection. xavier: as in VSE++; torch: PyTorch's default"
    )
    drop: Annotated[float, Field(ge=0, lt=1), IdentityDefault(0.0), SEVERAL] = Field(
        0.0, description="fraction of regions or grid cells dropped in training (size augmentation)"
    )


class ImageEncoderSettings(Settings):
    """Base class of the settings of image encoders."""

    network: ClassVar[str]
    """Factory of the encoder, as `module:name`; takes the settings, an image's shape, `model.dim` and weight folders.

    A dotted name would count as a reference in the code, and the code fingerprint of every trial would include it.
    """
    noun: ClassVar[str] = "image"
    """The word for its input in messages."""
    of_regions: ClassVar[bool] = False
    """Whether it requires several vectors per image."""

    @property
    def view(self) -> View | None:
        """The view of a picture that the encoder reads; None if it reads the user's precomputed features."""
        return None

    @property
    def reads(self) -> tuple[PartRead, ...]:
        """The encoder's inputs in its component's data format; empty if it reads images or image features."""
        return ()

    @property
    def feature_network(self) -> "BackboneSettings | None":
        """The frozen network whose features are computed once and cached; None if there is none."""
        return None


class CnnSettings(PoolingSettings, ImageEncoderSettings):
    """A small convolutional network on raw images."""

    network: ClassVar[str] = "goalgrid.retrieval.encoders.image:Cnn"
    encoder: Literal["cnn"] = Field(description=IMAGE_ENCODER)
    size: Annotated[int, Field(ge=8), Unit("pixels")] = Field(
        description="side of the square to which images are resized"
    )
    channels: Annotated[PositiveInt, Unit("channels")] = Field(
        32, description="channels of the first layer; doubled in each further layer"
    )
    layers: Annotated[PositiveInt, Unit("layers")] = Field(3, description="number of layers, each with stride 2")
    flip: StrictBool = Field(False, description="flip training images horizontally with probability 1/2")

    @property
    def view(self) -> View:
        """The whole picture. `flip` is not part of the view, because the network itself flips its input."""
        return View(self.size, resampling=Resampling.BICUBIC)


class FeatureSettings(HeadSettings, ImageEncoderSettings):
    """A head on precomputed features, pooled over regions if there are several; `encoder` is the name of the head."""

    network: ClassVar[str] = "goalgrid.retrieval.encoders.image:FeatureHead"
    drop_rule: ClassVar[DropRule] = "each"
    encoder: HeadName = Field(description=IMAGE_ENCODER)
    dropout: Dropout = Field(0.0, description="dropout probability")

    @property
    def head(self) -> HeadName:
        return self.encoder


class BackboneSettings(Pretrained, HeadSettings, ImageEncoderSettings):
    """A `transformers` vision backbone on raw images, followed by a head. If frozen, it runs once and is cached."""

    network: ClassVar[str] = "goalgrid.retrieval.encoders.image:Backbone"
    dropout: ClassVar[float] = 0.0
    encoder: Literal["backbone"] = Field(description=IMAGE_ENCODER)
    output: Literal["pooled", "grid", "projected"] = Field(
        "pooled",
        description="output of the backbone. pooled: one vector per image; grid: one per grid cell; projected: a "
        "two-tower network's "
        "embedding in the shared space",
    )
    frozen: StrictBool = Field(True, description="freeze the backbone and cache its features")
    trains: Annotated[Trains, IdentityDefault(None)] = Field(None, description=TRAINS)
    crops: Annotated[
        PositiveInt | Literal["online"], told_once("a number of crops from 1, or 'online'"), Unit("crops"), _CROPS
    ] = Field(
        1,
        description="for a frozen backbone, number of random crops per image whose features are cached; 1: only the "
        "evaluation view; online: new crops at each step, without a cache",
    )
    norm_eval: Annotated[StrictBool, _LEARNS] = Field(
        True, description="keep the backbone's batch norms at their pretrained statistics"
    )
    size: Annotated[int, Field(ge=8), Unit("pixels")] = Field(224, description="side of the encoder's square input")
    call: Annotated[Call, IdentityDefault("plain")] = Field("plain", description=CALLED)
    framing: Framing | Published = Field("centre-crop", description=FRAMED)
    margin: Annotated[
        Margin | Published, told_once("a number from 1, none or published"), IdentityDefault(None), _CROPPED
    ] = Field(None, description=MARGIN)
    filter: Annotated[Filter | Published | None, IdentityDefault(None)] = Field(
        None, description="interpolation used to resize pictures; none: bicubic with output = projected, else bilinear"
    )
    augmentation: Annotated[Augmentation, _VIEWS] = Field("resized-crop", description=AUGMENTED)
    flip: Annotated[StrictBool, _VIEWS] = Field(
        True, description="flip training images horizontally with probability 1/2"
    )
    statistics: Annotated[
        Statistics,
        told_once(
            "imagenet, clip, half, caffe, none, published, or six numbers: three means, three deviations above 0"
        ),
    ] = Field(
        "imagenet",
        description="mean and standard deviation used to normalise pixels. half: 0.5 and 0.5; caffe: subtract "
        "Caffe's mean "
        "from values in 0-255, without scaling; none: values in 0-1; a recipe may also give six numbers for values in "
        "0-1: the means of red, green and blue, then their standard deviations",
    )
    head: Literal[HeadName, "none"] = Field(
        "linear", description="trained head on the backbone's vectors; none: use these vectors as embeddings"
    )
    drop_rule: Annotated[DropRule, SEVERAL, ReadWhere(lambda part, _: part.drop > 0, "drop above 0")] = Field(
        "graded",
        description="each: drop every cell with probability drop; graded: draw a probability up to drop for each image",
    )

    @property
    def usual_filter(self) -> Filter:
        """The default interpolation: bicubic for two-tower embeddings, as in CLIP; else bilinear, as for ResNets."""
        return "bicubic" if self.output == "projected" else "bilinear"

    @property
    def view(self) -> View:
        """The view. Values set to `published` stay open until `calls.as_called` has read the folder of the weights."""
        framing, margin, filter_ = self.framing, self.margin, self.filter or self.usual_filter
        if margin == PUBLISHED or filter_ == PUBLISHED:
            return View(self.size, PUBLISHED, self.augmentation, self.flip)
        return View(self.size, framing, self.augmentation, self.flip, Resampling[filter_.upper()], margin)

    @model_validator(mode="before")
    @classmethod
    def _called(cls, content: Any) -> Any:
        content = cls._with_learning(content)
        return cls._with_call(content, **dict.fromkeys(("framing", "margin", "filter", "statistics"), PUBLISHED))

    @model_validator(mode="after")
    def _parts_are_there(self) -> Self:
        self._check_parts()
        return self

    @property
    def feature_network(self) -> "BackboneSettings | None":
        return self if self.frozen and self.crops != "online" else None


class OwnImageSettings(UserModuleSettings, ImageEncoderSettings):
    """A user-defined image encoder."""

    network: ClassVar[str] = "goalgrid.retrieval.own_networks:image_encoder"
    of: ClassVar[UserModuleKind] = "image encoder"
    encoder: Literal["own"] = Field(description=IMAGE_ENCODER)
    size: Annotated[int, Field(ge=8), Unit("pixels"), _PICTURES] = Field(
        224, description="side of the encoder's square input"
    )
    framing: Annotated[Framing, _PICTURES] = Field("centre-crop", description=FRAMED)
    margin: Annotated[Margin, IdentityDefault(None), _CROPPED] = Field(None, description=MARGIN)
    filter: Annotated[Filter, IdentityDefault("bilinear"), _PICTURES] = Field(
        "bilinear", description="interpolation used to resize pictures"
    )
    augmentation: Annotated[Augmentation, _PICTURES] = Field(
        "none", description=f"{AUGMENTED}; none: the evaluation view"
    )
    flip: Annotated[StrictBool, _PICTURES] = Field(
        False, description="flip training images horizontally with probability 1/2"
    )

    @property
    def view(self) -> View | None:
        if self.user_module.on != "pictures":
            return None
        resampling = Resampling[self.filter.upper()]
        return View(self.size, self.framing, self.augmentation, self.flip, resampling, self.margin)


ImageSettings = Annotated[
    CnnSettings | FeatureSettings | BackboneSettings | OwnImageSettings, Field(discriminator="encoder")
]
