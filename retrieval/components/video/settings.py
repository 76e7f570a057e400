"""Settings of CE and MMT: inputs from experts, video encoders, text encoder, and scorer."""

from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

from pydantic import Field, NonNegativeInt, PositiveInt, StrictBool, model_validator

from goalgrid.grid.errors import unknown
from goalgrid.grid.settings.base import Dropout, ReadWhere, Unit
from goalgrid.grid.settings.components import PartRead
from goalgrid.grid.settings.image_encoders import IMAGE_ENCODER, ImageEncoderSettings
from goalgrid.grid.settings.pretrained_networks import Pretrained
from goalgrid.grid.settings.scorers import KIND, ScorerSettings
from goalgrid.grid.settings.text_encoders import TEXT_ENCODER, TextEncoderSettings, TransformerSettings


@dataclass(frozen=True)
class ExpertRead(PartRead):
    """The input from one expert; the inputs of all experts are concatenated to one vector per video.

    Args:
        whole: a vector for the whole video, which comes first: the mean or maximum over all its vectors.
        tokens: maximum number of vectors read after that; from more, a random sample if `sampled`, else the first.
    """

    part: ClassVar[str] = "video"
    name: str
    width: int
    whole: Literal["mean", "max", "none"]
    tokens: int = 0
    sampled: bool = False

    @property
    def rows(self) -> int:
        return self.tokens + (self.whole != "none")

    @property
    def values(self) -> int:
        """Number of values per video: vectors, their times, and the number of tokens (-1 if the expert saw nothing)."""
        return self.rows * (self.width + 1) + 1


class VideoSettings(ImageEncoderSettings):
    """Base settings of video encoders; the image of a pair is then a video, given by vectors from experts."""

    noun: ClassVar[str] = "video"
    experts: dict[str, PositiveInt] = Field(
        description="vector width of each expert by name; can only be set in a recipe"
    )


class CeSettings(VideoSettings):
    """CE: one vector per expert, gated by those of the other experts. Liu et al., BMVC 2019."""

    network: ClassVar[str] = "goalgrid.retrieval.components.video.networks:CollaborativeExperts"
    encoder: Literal["ce"] = Field(description=IMAGE_ENCODER)
    tokens: dict[str, PositiveInt] = Field(
        {}, description="number of vectors that NetVLAD pools, for each expert that uses it; other experts are averaged"
    )
    clusters: dict[str, PositiveInt] = Field({}, description="number of NetVLAD clusters for each of these experts")

    @property
    def reads(self) -> tuple[ExpertRead, ...]:
        return tuple(
            ExpertRead(name, width, "none" if name in self.tokens else "mean", self.tokens.get(name, 0))
            for name, width in sorted(self.experts.items())
        )

    @model_validator(mode="after")
    def _pooled_are_experts(self) -> "CeSettings":
        for name in dict.fromkeys([*self.tokens, *self.clusters]):
            if name not in self.experts:
                raise ValueError(unknown("expert", name, sorted(self.experts), where="in image.tokens or .clusters"))
            if name not in self.tokens or name not in self.clusters:
                raise ValueError(f"expert {name!r} needs an entry in both tokens and clusters")
        return self


class MmtSettings(VideoSettings):
    """MMT: a transformer over the vectors of all experts, with time embeddings. Gabeur et al., ECCV 2020."""

    network: ClassVar[str] = "goalgrid.retrieval.components.video.networks:MultiModalTransformer"
    encoder: Literal["mmt"] = Field(description=IMAGE_ENCODER)
    tokens: Annotated[PositiveInt, Unit("vectors")] = Field(
        30, description="maximum number of vectors read per expert; from more, a random sample"
    )
    layers: Annotated[PositiveInt, Unit("layers")] = Field(4, description="number of transformer layers")
    heads: Annotated[PositiveInt, Unit("heads")] = Field(4, description="attention heads per layer")
    feed_forward: Annotated[PositiveInt, Unit("values")] = Field(
        3072, description="hidden width of the MLP in each layer"
    )
    dropout: Dropout = Field(0.1, description="share of the values set to zero in training")

    @property
    def reads(self) -> tuple[ExpertRead, ...]:
        return tuple(
            ExpertRead(name, width, "max", self.tokens, sampled=True) for name, width in sorted(self.experts.items())
        )


class ExpertTextSettings(Pretrained, TextEncoderSettings):
    """Text encoder of CE and MMT: one gated caption vector per expert, and the weight of each expert."""

    network: ClassVar[str] = "goalgrid.retrieval.components.video.networks:ExpertTexts"
    boundaries: ClassVar[bool] = True
    encoder: Literal["gated"] = Field(description=TEXT_ENCODER)
    frozen: StrictBool = Field(False, description="freeze the backbone and cache its features")
    experts: PositiveInt = Field(description="number of experts")
    clusters: NonNegativeInt = Field(
        0, description="number of NetVLAD clusters that pool token states; 0: use the first token's state"
    )
    tokens: Annotated[PositiveInt, Unit("tokens"), ReadWhere(lambda own, _: own.clusters > 0, "clusters above 0")] = (
        Field(37, description="number of tokens that NetVLAD pools; shorter captions are padded, as in CE")
    )
    dropout: Dropout = Field(0.0, description="dropout rate before the experts' weights are computed")

    @property
    def feature_network(self) -> "TransformerSettings | None":
        if not self.frozen or self.word_drop:
            return None
        network = {"weights": self.weights, "architecture": self.architecture, "frozen": True}
        return TransformerSettings.model_validate({"pooling": "none", "preparation": self.preparation, **network})


class MixtureSettings(ScorerSettings):
    """Scorer of CE and MMT: cosine similarities per expert, averaged with weights from the caption."""

    network: ClassVar[str] = "goalgrid.retrieval.components.video.networks:Mixture"
    kind: Literal["mixture"] = Field(description=KIND)
