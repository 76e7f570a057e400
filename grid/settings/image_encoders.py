"""Settings of the image encoders: how an image becomes vectors."""

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

IMAGE_ENCODER = "the image network; another choice drops the settings of the one before"
CALLED = (
    "published: framing, margin, filter and statistics that this table does not set are read from the weights' "
    "preprocessor_config.json; plain: they have their defaults"
)
FRAMED = "the square in evaluation: the picture squeezed, or its centre in its proportions"
MARGIN = (
    "the shorter side is resized to margin x size, in whole pixels, before the centre is cut; 1: all of the shorter "
    "side is seen, as CLIP's own preparation does; none: 256 / 224, not rounded to whole pixels"
)
AUGMENTED = (
    "the square in training: resized-crop is VSE++'s, scale-crop VSE-infinity's in the picture's proportions, "
    "side-crop draws each side by itself; rand-augment is X-VLM's, a larger crop with random changes"
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
    """The head on the vectors of an image: a single vector, or a vector for each region or cell."""

    normalize: StrictBool = Field(True, description="bring each input vector to unit length first, as VSE++ does")
    hidden: Annotated[PositiveInt, Unit("values"), IdentityDefault(512), _MLP] = Field(
        512, description="width of the head's MLP; half of model.dim unless it is set"
    )
    init: Annotated[Literal["xavier", "torch"], IdentityDefault("torch"), HAS_HEAD] = Field(
        "xavier", description="first weights of the projection: VSE++'s, or PyTorch's own"
    )
    drop: Annotated[float, Field(ge=0, lt=1), IdentityDefault(0.0), SEVERAL] = Field(
        0.0, description="share of regions or cells left out in training (size augmentation)"
    )


class ImageEncoderSettings(Settings):
    """The properties that the settings of every image encoder have."""

    network: ClassVar[str]
    """What makes the encoder of the settings, an image's shape, `model.dim` and folders of weights: `module:name`.

    A dotted name would be a name in the code, so fingerprints of code would follow it for each trial.
    """
    noun: ClassVar[str] = "image"
    """What it reads, for a user."""
    of_regions: ClassVar[bool] = False
    """Whether it reads several vectors an image, and never a single one."""

    @property
    def view(self) -> View | None:
        """The view of a picture that the encoder reads; None: it reads features that the user computed."""
        return None

    @property
    def reads(self) -> tuple[PartRead, ...]:
        """What the encoder reads of data in its component's form; empty: it reads images, or features of them."""
        return ()

    @property
    def feature_network(self) -> "BackboneSettings | None":
        """A network that does not run in training, because its features are computed before; None: there is none."""
        return None


class CnnSettings(PoolingSettings, ImageEncoderSettings):
    """A small convolutional network on raw images."""

    network: ClassVar[str] = "goalgrid.retrieval.encoders.image:Cnn"
    encoder: Literal["cnn"] = Field(description=IMAGE_ENCODER)
    size: Annotated[int, Field(ge=8), Unit("pixels")] = Field(
        description="side of the square that images are resized to"
    )
    channels: Annotated[PositiveInt, Unit("channels")] = Field(
        32, description="channels of the first layer; each further layer doubles them"
    )
    layers: Annotated[PositiveInt, Unit("layers")] = Field(3, description="layers, each of which halves the side")
    flip: StrictBool = Field(False, description="mirror half of the training images")

    @property
    def view(self) -> View:
        """The whole picture; `flip` is left out, since the network mirrors by itself."""
        return View(self.size, resampling=Resampling.BICUBIC)


class FeatureSettings(HeadSettings, ImageEncoderSettings):
    """A head on precomputed features, pooled over regions if there are several. The encoder's name is the head's."""

    network: ClassVar[str] = "goalgrid.retrieval.encoders.image:FeatureHead"
    drop_rule: ClassVar[DropRule] = "each"
    encoder: HeadName = Field(description=IMAGE_ENCODER)
    dropout: Dropout = Field(0.0, description="share of the values set to zero in training")

    @property
    def head(self) -> HeadName:
        return self.encoder


class BackboneSettings(Pretrained, HeadSettings, ImageEncoderSettings):
    """A `transformers` vision network on raw images, under a head. Frozen, it runs once: its features are cached."""

    network: ClassVar[str] = "goalgrid.retrieval.encoders.image:Backbone"
    dropout: ClassVar[float] = 0.0
    encoder: Literal["backbone"] = Field(description=IMAGE_ENCODER)
    output: Literal["pooled", "grid", "projected"] = Field(
        "pooled",
        description="one vector an image; one a cell; or, of a network with two towers, the vector that it compares",
    )
    frozen: StrictBool = Field(True, description="the backbone does not learn, and its features are cached")
    trains: Annotated[Trains, IdentityDefault(None)] = Field(None, description=TRAINS)
    crops: Annotated[
        PositiveInt | Literal["online"], told_once("a number of crops from 1, or 'online'"), Unit("crops"), _CROPS
    ] = Field(
        1,
        description="of a frozen backbone: random crops an image whose features are cached; 1: the evaluation view "
        "alone; online: drawn and computed again at each step",
    )
    norm_eval: Annotated[StrictBool, _LEARNS] = Field(
        True, description="batch norms of the backbone keep their pretrained statistics"
    )
    size: Annotated[int, Field(ge=8), Unit("pixels")] = Field(224, description="side of the square that it sees")
    call: Annotated[Call, IdentityDefault("plain")] = Field("plain", description=CALLED)
    framing: Framing | Published = Field("centre-crop", description=FRAMED)
    margin: Annotated[
        Margin | Published, told_once("a number from 1, none or published"), IdentityDefault(None), _CROPPED
    ] = Field(None, description=MARGIN)
    filter: Annotated[Filter | Published | None, IdentityDefault(None)] = Field(
        None, description="how pictures are resized; none: bicubic with output = projected, else bilinear"
    )
    augmentation: Annotated[Augmentation, _VIEWS] = Field("resized-crop", description=AUGMENTED)
    flip: Annotated[StrictBool, _VIEWS] = Field(True, description="mirror half of the training images")
    statistics: Annotated[
        Statistics,
        told_once(
            "imagenet, clip, half, caffe, none, published, or six numbers: three means, three deviations above 0"
        ),
    ] = Field(
        "imagenet",
        description="mean and deviation that pixels are normalised with; half: 0.5 and 0.5; caffe: a mean of its own "
        "and no deviation, values of 0 to 255; none: values of 0 to 1; in a recipe, also six numbers: means of red, "
        "green and blue, then their deviations, of values of 0 to 1",
    )
    head: Literal[HeadName, "none"] = Field(
        "linear", description="the trained network on the backbone's vectors; none: they are the embeddings"
    )
    drop_rule: Annotated[DropRule, SEVERAL, ReadWhere(lambda part, _: part.drop > 0, "drop above 0")] = Field(
        "graded", description="each: every cell alike; graded: an image's own share, up to drop, drawn each time"
    )

    @property
    def usual_filter(self) -> Filter:
        """How pictures were resized before `filter` was a setting: as CLIP was trained, or as ResNets were."""
        return "bicubic" if self.output == "projected" else "bilinear"

    @property
    def view(self) -> View:
        """The view; what the folder of the weights decides is known once `calls.as_called` has read it."""
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
    """An image encoder of the user's own."""

    network: ClassVar[str] = "goalgrid.retrieval.own_networks:image_encoder"
    of: ClassVar[UserModuleKind] = "image encoder"
    encoder: Literal["own"] = Field(description=IMAGE_ENCODER)
    size: Annotated[int, Field(ge=8), Unit("pixels"), _PICTURES] = Field(
        224, description="side of the square that it sees"
    )
    framing: Annotated[Framing, _PICTURES] = Field("centre-crop", description=FRAMED)
    margin: Annotated[Margin, IdentityDefault(None), _CROPPED] = Field(None, description=MARGIN)
    filter: Annotated[Filter, IdentityDefault("bilinear"), _PICTURES] = Field(
        "bilinear", description="how pictures are resized"
    )
    augmentation: Annotated[Augmentation, _PICTURES] = Field("none", description=f"{AUGMENTED}; none: as in evaluation")
    flip: Annotated[StrictBool, _PICTURES] = Field(False, description="mirror half of the training images")

    @property
    def view(self) -> View | None:
        if self.user_module.on != "pictures":
            return None
        resampling = Resampling[self.filter.upper()]
        return View(self.size, self.framing, self.augmentation, self.flip, resampling, self.margin)


ImageSettings = Annotated[
    CnnSettings | FeatureSettings | BackboneSettings | OwnImageSettings, Field(discriminator="encoder")
]
