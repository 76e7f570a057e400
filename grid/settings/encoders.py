"""Settings of the encoders: of the image network, the text network, and the pooling of their vectors."""

from abc import abstractmethod
from dataclasses import dataclass
from enum import IntEnum
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import (
    AfterValidator,
    Field,
    NonNegativeInt,
    PositiveInt,
    WithJsonSchema,
    model_validator,
)

from grid.errors import unknown
from grid.settings.base import IdentityDefault, ReadWhere, Settings, Unit
from grid.settings.experts import ExpertRead
from grid.settings.own import OwnKind, OwnPartSettings, own_parts

POOLINGS = (
    "mean", "max", "kmax", "softmax", "lip", "adapool", "gpo", "adpool", "adpool-released",
    "gcn", "selfattn", "seq2seq", "none",
)  # fmt: skip
"""The poolings of ours."""
own_poolings: dict[str, Any] = {}
"""The functions and classes of the user's own poolings that the present grid uses, by name."""


def _known_pooling(name: str) -> str:
    known = [*POOLINGS, *own_poolings]
    if name not in known:
        raise ValueError(unknown("pooling", name, known))
    return name


PoolingName = Annotated[str, AfterValidator(_known_pooling), WithJsonSchema({"type": "string", "enum": POOLINGS})]
HeadName = Literal["linear", "linear-mlp", "mlp", "residual-mlp"]
MLP_HEADS: tuple[HeadName, ...] = ("linear-mlp", "mlp", "residual-mlp")
Framing = Literal["square", "centre-crop"]
Augmentation = Literal["none", "resized-crop", "scale-crop", "side-crop", "rand-augment"]
DropRule = Literal["each", "graded"]

RANDOM = "random"
"""The name of no weights: a network built from its architecture and started from a fixed seed."""

IMAGE_ENCODER = "the image network; another choice drops the settings of the one before"
TEXT_ENCODER = "the text network; another choice drops the settings of the one before"

WeightsName = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*(/[A-Za-z0-9._-]+)?$")]
"""A name as model hubs give it, `google-bert/bert-base-uncased`. The folder on this machine is no setting."""

Dropout = Annotated[float, Field(ge=0, lt=1)]
Balance = Annotated[float, Field(ge=0, le=1)] | Literal["learnt", "random"]


class Resampling(IntEnum):
    """How a picture is resized, as Pillow counts."""

    BILINEAR = 2
    BICUBIC = 3


@dataclass(frozen=True)
class View:
    """The square of a picture that a network sees.

    Args:
        size: side in pixels.
        framing: in evaluation; `square` squeezes the whole picture, `centre-crop` keeps its proportions.
        augmentation: in training; `resized-crop` is VSE++'s; `scale-crop` VSE-infinity's, of the picture's own
            proportions; `side-crop` draws each side by itself; `rand-augment` is X-VLM's: a resized crop of at least
            half the area, and two of ten random changes.
        flip: mirror half of the training views.
    """

    size: int
    framing: Framing = "square"
    augmentation: Augmentation = "none"
    flip: bool = False
    resampling: Resampling = Resampling.BILINEAR

    @property
    def random(self) -> bool:
        """Whether training views differ from draw to draw."""
        return self.augmentation != "none" or self.flip


class Pretrained(Settings):
    """A `transformers` network: weights by name, or an architecture with random ones."""

    of_file: ClassVar[bool] = False
    """Whether the weights are a file of their authors', which no hub has."""
    weights: WeightsName = Field(
        description="name on the model hub, or random; --weights says where it lies on this machine"
    )
    architecture: dict[str, int | float | bool | str | list[int] | list[str]] = Field(
        {}, description="a network without pretrained weights: model_type and its sizes; in a recipe only"
    )

    def __hash__(self) -> int:
        return hash(self.model_dump_json())

    @model_validator(mode="after")
    def _one_source(self) -> Self:
        if self.weights == RANDOM and "model_type" not in self.architecture:
            raise ValueError(f'weights = "{RANDOM}" needs an architecture with a model_type')
        if self.weights != RANDOM and self.architecture:
            raise ValueError(f"the architecture comes with weights {self.weights!r}; give one of the two")
        return self


class PretrainedFile(Pretrained):
    """Weights of a whole model in a file of its authors', by name."""

    of_file: ClassVar[bool] = True


_SEVERAL = ReadWhere(
    lambda own, _: getattr(own, "output", "grid") in ("grid", "states"), "output = grid, or a caption's output = states"
)
"""Where an image or a caption is several vectors; features that a user computed are taken for several."""
_HEAD = ReadWhere(lambda own, _: getattr(own, "head", "linear") != "none", "a head")
_LEARNS = ReadWhere(lambda own, _: not own.frozen, "frozen = false")
_CROPS = ReadWhere(
    lambda own, _: own.frozen and (own.view.random or own.crops == "online"),
    "frozen = true, and random views or crops = online",
)
_PICTURES = ReadWhere(lambda own, _: own.view is not None, 'an encoder on = "pictures"')
_VIEWS = ReadWhere(lambda own, _: not own.frozen or own.crops != 1, "frozen = false, or crops above 1")


class PoolingSettings(Settings):
    """How a set of vectors becomes a single vector; `none` leaves it a set, for a scorer that reads sets."""

    pooling: Annotated[PoolingName, _SEVERAL] = Field("mean", description="how several vectors become one")
    pool_k: Annotated[
        PositiveInt,
        Unit("values"),
        IdentityDefault(5),
        _SEVERAL,
        ReadWhere(lambda own, _: own.pooling == "kmax", "pooling = kmax"),
    ] = Field(5, description="how many of the largest values k-max averages")
    pool_balance: Annotated[
        Balance,
        IdentityDefault("learnt"),
        _SEVERAL,
        ReadWhere(lambda own, _: own.pooling.startswith("adpool"), "pooling = adpool"),
    ] = Field(
        "learnt",
        description="share of ADPOOL's token level, the rest is its embedding level: learnt; drawn once from U(0, 1), "
        "random; or a number, 1: the token level alone",
    )


class HeadSettings(PoolingSettings):
    """The head on the vectors of an image: a single vector, or a vector for each region or cell."""

    normalize: bool = Field(True, description="bring each input vector to unit length first, as VSE++ does")
    hidden: Annotated[
        PositiveInt,
        Unit("values"),
        IdentityDefault(512),
        ReadWhere(lambda own, _: own.head in MLP_HEADS, "a head with an MLP"),
    ] = Field(512, description="width of the head's MLP; half of model.dim unless it is set")
    init: Annotated[Literal["xavier", "torch"], IdentityDefault("torch"), _HEAD] = Field(
        "xavier", description="first weights of the projection: VSE++'s, or PyTorch's own"
    )
    drop: Annotated[float, Field(ge=0, lt=1), IdentityDefault(0.0), _SEVERAL] = Field(
        0.0, description="share of regions or cells left out in training (size augmentation)"
    )


class ImageEncoderSettings(Settings):
    """The properties that the settings of every image encoder have."""

    @property
    @abstractmethod
    def view(self) -> View | None:
        """The view of a picture that the encoder reads; None: it reads features that the user computed."""

    @property
    def reads(self) -> tuple[ExpertRead, ...]:
        """What the encoder reads of a video; empty: it reads images."""
        return ()

    @property
    def feature_network(self) -> "BackboneSettings | None":
        """A network that does not run in training, because its features are computed before; None: there is none."""
        return None


class CnnSettings(PoolingSettings, ImageEncoderSettings):
    """A small convolutional network on raw images."""

    encoder: Literal["cnn"] = Field(description=IMAGE_ENCODER)
    size: Annotated[int, Field(ge=8), Unit("pixels")] = Field(
        description="side of the square that images are resized to"
    )
    channels: Annotated[PositiveInt, Unit("channels")] = Field(
        32, description="channels of the first layer; each further layer doubles them"
    )
    layers: Annotated[PositiveInt, Unit("layers")] = Field(3, description="layers, each of which halves the side")
    flip: bool = Field(False, description="mirror half of the training images")

    @property
    def view(self) -> View:
        """The whole picture; `flip` is left out, since the network mirrors by itself."""
        return View(self.size, resampling=Resampling.BICUBIC)


class FeatureSettings(HeadSettings, ImageEncoderSettings):
    """A head on precomputed features, pooled over regions if there are several. The encoder's name is the head's."""

    drop_rule: ClassVar[DropRule] = "each"
    encoder: HeadName = Field(description=IMAGE_ENCODER)
    dropout: Dropout = Field(0.0, description="share of the values set to zero in training")

    @property
    def head(self) -> HeadName:
        return self.encoder

    @property
    def view(self) -> None:
        return None


class BackboneSettings(Pretrained, HeadSettings, ImageEncoderSettings):
    """A `transformers` vision network on raw images, under a head. Frozen, it runs once: its features are cached."""

    dropout: ClassVar[float] = 0.0
    encoder: Literal["backbone"] = Field(description=IMAGE_ENCODER)
    output: Literal["pooled", "grid", "projected"] = Field(
        "pooled",
        description="one vector an image; one a cell; or, of a network with two towers, the vector that it compares",
    )
    frozen: bool = Field(True, description="the backbone does not learn, and its features are cached")
    crops: Annotated[PositiveInt | Literal["online"], Unit("crops"), _CROPS] = Field(
        1,
        description="of a frozen backbone: random crops an image whose features are cached; 1: the evaluation view "
        "alone; online: drawn and computed anew at each step",
    )
    norm_eval: Annotated[bool, _LEARNS] = Field(
        True, description="batch norms of the backbone keep their pretrained statistics"
    )
    size: Annotated[int, Field(ge=8), Unit("pixels")] = Field(224, description="side of the square that it sees")
    framing: Framing = Field(
        "centre-crop", description="the square in evaluation: the picture squeezed, or its centre in its proportions"
    )
    augmentation: Annotated[Augmentation, _VIEWS] = Field(
        "resized-crop",
        description="the square in training: resized-crop is VSE++'s, scale-crop VSE-infinity's in the picture's "
        "proportions, side-crop draws each side by itself; rand-augment is X-VLM's, a larger crop with random changes",
    )
    flip: Annotated[bool, _VIEWS] = Field(True, description="mirror half of the training images")
    statistics: Literal["imagenet", "clip", "half", "caffe"] = Field(
        "imagenet",
        description="mean and deviation that pixels are brought to; half: 0.5 and 0.5; caffe: a mean of "
        "its own and no deviation, values of 0 to 255",
    )
    head: HeadName | Literal["none"] = Field(
        "linear", description="the trained network on the backbone's vectors; none: they are the embeddings"
    )
    drop_rule: Annotated[DropRule, _SEVERAL, ReadWhere(lambda own, _: own.drop > 0, "drop above 0")] = Field(
        "graded", description="each: every cell alike; graded: an image's own share, up to drop, drawn each time"
    )

    @property
    def view(self) -> View:
        resampling = Resampling.BICUBIC if self.output == "projected" else Resampling.BILINEAR  # as CLIP was trained
        return View(self.size, self.framing, self.augmentation, self.flip, resampling)

    @property
    def feature_network(self) -> "BackboneSettings | None":
        return self if self.frozen and self.crops != "online" else None


SWIN_PATCH = 4
"""Pixels on a side of Swin's patches."""


class SwinSettings(ImageEncoderSettings):
    """Swin on raw images under a linear layer, as X-VLM has it. It learns.

    Its weights come with the weights of the fusion encoder.
    """

    frozen: ClassVar[bool] = False
    encoder: Literal["swin"] = Field(description=IMAGE_ENCODER)
    width: Annotated[PositiveInt, Unit("values")] = Field(
        128, description="width of the first stage; each further stage doubles it"
    )
    depths: tuple[PositiveInt, ...] = Field((2, 2, 18, 2), min_length=1, description="blocks of each stage")
    heads: tuple[PositiveInt, ...] = Field((4, 8, 16, 32), description="attention heads of each stage")
    window: Annotated[PositiveInt, Unit("patches")] = Field(12, description="side of the windows that attend within")
    drop_path: Annotated[float, Field(ge=0, lt=1)] = Field(
        0.1, description="share of images for which training leaves out the last block; smaller for earlier blocks"
    )
    size: Annotated[int, Field(ge=8), Unit("pixels")] = Field(384, description="side of the square that it sees")
    framing: Framing = Field(
        "square", description="the square in evaluation: the picture squeezed, or its centre in its proportions"
    )
    augmentation: Augmentation = Field(
        "resized-crop",
        description="the square in training: resized-crop is VSE++'s, scale-crop VSE-infinity's in the picture's "
        "proportions, side-crop draws each side by itself; rand-augment is X-VLM's, a larger crop with random changes",
    )
    flip: bool = Field(True, description="mirror half of the training images")
    statistics: Literal["imagenet", "clip", "half"] = Field(
        "clip", description="mean and deviation that pixels are brought to; half: 0.5 and 0.5"
    )

    @property
    def view(self) -> View:
        return View(self.size, self.framing, self.augmentation, self.flip, Resampling.BICUBIC)

    @property
    def last_width(self) -> int:
        """Width of the last stage."""
        return int(self.width * 2 ** (len(self.depths) - 1))

    @model_validator(mode="after")
    def _stages_fit(self) -> Self:
        """Every stage has whole windows and whole heads."""
        if len(self.heads) != len(self.depths):
            raise ValueError(f"heads has {len(self.heads)} stages, and depths {len(self.depths)}")
        for stage, heads in enumerate(self.heads):
            width, pixels = self.width * 2**stage, SWIN_PATCH * 2**stage
            if width % heads:
                raise ValueError(f"heads: stage {stage + 1} has {width} values, which {heads} heads cannot share")
            if self.size % (pixels * min(self.window, self.size // pixels or self.window)):
                raise ValueError(
                    f"size = {self.size}: stage {stage + 1} sees cells of {pixels} pixels in windows of {self.window}, "
                    f"so a multiple of {SWIN_PATCH * 2 ** (len(self.depths) - 1) * self.window} pixels fits"
                )
        return self


class OwnImageSettings(OwnPartSettings, ImageEncoderSettings):
    """An image encoder of the user's own."""

    of: ClassVar[OwnKind] = "image encoder"
    encoder: Literal["own"] = Field(description=IMAGE_ENCODER)
    size: Annotated[int, Field(ge=8), Unit("pixels"), _PICTURES] = Field(
        224, description="side of the square that it sees"
    )
    framing: Annotated[Framing, _PICTURES] = Field(
        "centre-crop", description="the square in evaluation: the picture squeezed, or its centre in its proportions"
    )
    augmentation: Annotated[Augmentation, _PICTURES] = Field(
        "none",
        description="the square in training: resized-crop is VSE++'s, scale-crop VSE-infinity's in the picture's "
        "proportions, side-crop draws each side by itself; rand-augment is X-VLM's, a larger crop with random changes; "
        "none: as in evaluation",
    )
    flip: Annotated[bool, _PICTURES] = Field(False, description="mirror half of the training images")

    @property
    def view(self) -> View | None:
        if own_parts[self.of][self.name].on != "pictures":
            return None
        return View(self.size, self.framing, self.augmentation, self.flip)


class VideoSettings(ImageEncoderSettings):
    """Settings of all encoders of videos. The image of a pair is then a video: the vectors that experts made of it."""

    experts: dict[str, PositiveInt] = Field(
        description="the experts by name, each with the length of its vectors; in a recipe only"
    )

    @property
    def view(self) -> None:
        return None

    def __hash__(self) -> int:
        return hash(self.model_dump_json())


class CeSettings(VideoSettings):
    """CE: a vector for each expert, gated by the vectors of the other experts. Liu et al., BMVC 2019."""

    encoder: Literal["ce"] = Field(description=IMAGE_ENCODER)
    tokens: dict[str, PositiveInt] = Field(
        {},
        description="experts whose vectors NetVLAD pools, with the number that it reads; of others the mean is read",
    )
    clusters: dict[str, PositiveInt] = Field({}, description="NetVLAD's clusters for each of these experts")

    @property
    def reads(self) -> tuple[ExpertRead, ...]:
        return tuple(
            ExpertRead(name, width, "none", self.tokens[name])
            if name in self.tokens
            else ExpertRead(name, width, "mean")
            for name, width in sorted(self.experts.items())
        )

    @model_validator(mode="after")
    def _pooled_are_experts(self) -> Self:
        for name in dict.fromkeys([*self.tokens, *self.clusters]):
            if name not in self.experts:
                raise ValueError(unknown("expert", name, sorted(self.experts), where="in image.tokens or .clusters"))
            if name not in self.tokens or name not in self.clusters:
                raise ValueError(f"expert {name!r} needs both a number of tokens and of clusters")
        return self


class MmtSettings(VideoSettings):
    """MMT: a transformer over the vectors of all experts, in time. Gabeur et al., ECCV 2020."""

    encoder: Literal["mmt"] = Field(description=IMAGE_ENCODER)
    tokens: Annotated[PositiveInt, Unit("vectors")] = Field(
        30, description="how many vectors of an expert are read; if it has more, they are drawn"
    )
    layers: Annotated[PositiveInt, Unit("layers")] = Field(4, description="layers of the transformer")
    heads: Annotated[PositiveInt, Unit("heads")] = Field(4, description="heads of attention in a layer")
    feed_forward: Annotated[PositiveInt, Unit("values")] = Field(3072, description="width within a layer")
    dropout: Dropout = Field(0.1, description="share of the values set to zero in training")

    @property
    def reads(self) -> tuple[ExpertRead, ...]:
        return tuple(
            ExpertRead(name, width, "max", self.tokens, sampled=True) for name, width in sorted(self.experts.items())
        )


ImageSettings = Annotated[
    CnnSettings | FeatureSettings | BackboneSettings | SwinSettings | CeSettings | MmtSettings | OwnImageSettings,
    Field(discriminator="encoder"),
]


class TextEncoderSettings(Settings):
    """The settings that every text encoder has, beside `boundaries`."""

    word_drop: Annotated[float, Field(ge=0, lt=1), IdentityDefault(0.0)] = Field(
        0.0, description="share of words masked, replaced or left out in training"
    )

    @property
    def tokenizer(self) -> Pretrained | None:
        """The weights beside which the tokenizer lies whose pieces the encoder reads; None: it reads words."""
        return None

    @property
    def feature_network(self) -> "TransformerSettings | None":
        """A network that does not run in training, because its features are computed before; None: there is none."""
        return None


class WordSettings(TextEncoderSettings):
    """Settings of every encoder that embeds words of the training captions."""

    word_dim: Annotated[PositiveInt, Unit("values")] = Field(300, description="width of the word embeddings")
    dropout: Dropout = Field(0.0, description="share of the values set to zero in training")
    boundaries: Annotated[bool, IdentityDefault(False)] = Field(False, description="mark a caption's <start> and <end>")


class BowSettings(WordSettings, PoolingSettings):
    """Word embeddings, pooled: no order, and fast."""

    encoder: Literal["bow"] = Field(description=TEXT_ENCODER)


class GruSettings(WordSettings):
    """VSE++'s text encoder: the last state of a one-layer GRU."""

    encoder: Literal["gru"] = Field(description=TEXT_ENCODER)


class BiGruSettings(WordSettings, PoolingSettings):
    """A GRU read in both directions, its states averaged over directions and pooled over words."""

    encoder: Literal["bigru"] = Field(description=TEXT_ENCODER)


class TransformerSettings(Pretrained, PoolingSettings, TextEncoderSettings):
    """A `transformers` text network, its token states projected and pooled. With random weights it reads words."""

    boundaries: ClassVar[bool] = True
    encoder: Literal["transformer"] = Field(default="transformer", description=TEXT_ENCODER)
    frozen: bool = Field(False, description="the backbone does not learn, and its features are cached")
    output: Annotated[Literal["states", "projected"], IdentityDefault("states")] = Field(
        "states",
        description="a state a word piece; or, of a network with two towers, the vector that it compares with images",
    )
    head: Annotated[Literal["linear", "none"], IdentityDefault("linear")] = Field(
        "linear", description="the trained layer on the backbone's vectors; none: they are the embeddings"
    )
    init: Annotated[Literal["xavier", "torch"], IdentityDefault("xavier"), _HEAD] = Field(
        "torch", description="first weights of the projection: PyTorch's own, or VSE++'s"
    )
    prompt: Annotated[str, IdentityDefault("")] = Field("", description="words put before every caption")

    @property
    def tokenizer(self) -> Pretrained | None:
        return None if self.weights == RANDOM else self

    @property
    def feature_network(self) -> "TransformerSettings | None":
        return self if self.frozen and not self.word_drop else None


class BertLayersSettings(TextEncoderSettings):
    """Layers of BERT under a linear layer on the first token, as X-VLM has them. They learn.

    Their weights come with the weights of the fusion encoder.
    """

    boundaries: ClassVar[bool] = True
    frozen: ClassVar[bool] = False
    encoder: Literal["bert-layers"] = Field(description=TEXT_ENCODER)
    pieces: WeightsName = Field(
        "google-bert/bert-base-uncased",
        description="name on the model hub of the tokenizer, --weights says where it lies; random: it reads words",
    )
    layers: Annotated[PositiveInt, Unit("layers")] = Field(6, description="layers of the text encoder")
    width: Annotated[PositiveInt, Unit("values")] = Field(768, description="width of a token's state")
    heads: Annotated[PositiveInt, Unit("heads")] = Field(12, description="attention heads of a layer")
    hidden: Annotated[PositiveInt, Unit("values")] = Field(3072, description="width of the MLP of a layer")
    dropout: Dropout = Field(0.1, description="share of the values set to zero in training")

    @property
    def tokenizer(self) -> Pretrained | None:
        return None if self.pieces == RANDOM else Pretrained(weights=self.pieces, architecture={})

    @model_validator(mode="after")
    def _heads_share_the_width(self) -> Self:
        if self.width % self.heads:
            raise ValueError(f"heads: {self.width} values, which {self.heads} heads cannot share")
        return self


class ExpertTextSettings(Pretrained, TextEncoderSettings):
    """The text side of CE and MMT: a gated vector of a caption for each expert, and how much each expert counts."""

    boundaries: ClassVar[bool] = True
    encoder: Literal["gated"] = Field(description=TEXT_ENCODER)
    frozen: bool = Field(False, description="the backbone does not learn, and its features are cached")
    experts: PositiveInt = Field(description="how many experts a video has")
    clusters: NonNegativeInt = Field(
        0, description="clusters of NetVLAD, which pools the tokens' states; 0: the state of the first token"
    )
    tokens: Annotated[PositiveInt, Unit("tokens"), ReadWhere(lambda own, _: own.clusters > 0, "clusters above 0")] = (
        Field(37, description="tokens that NetVLAD reads; a shorter caption is padded, as in CE")
    )
    dropout: Dropout = Field(0.0, description="share of the values set to zero before experts are weighed")

    @property
    def tokenizer(self) -> Pretrained | None:
        return None if self.weights == RANDOM else self

    @property
    def feature_network(self) -> "TransformerSettings | None":
        if not self.frozen or self.word_drop:
            return None
        network = {"weights": self.weights, "architecture": self.architecture, "frozen": True}
        return TransformerSettings.model_validate({"pooling": "none", **network})


class OwnTextSettings(OwnPartSettings, TextEncoderSettings):
    """A text encoder of the user's own, which reads words of the training captions."""

    of: ClassVar[OwnKind] = "text encoder"
    encoder: Literal["own"] = Field(description=TEXT_ENCODER)
    boundaries: Annotated[bool, IdentityDefault(False)] = Field(False, description="mark a caption's <start> and <end>")


TextSettings = Annotated[
    BowSettings
    | GruSettings
    | BiGruSettings
    | TransformerSettings
    | BertLayersSettings
    | ExpertTextSettings
    | OwnTextSettings,
    Field(discriminator="encoder"),
]
