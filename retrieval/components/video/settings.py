"""Settings of CE and MMT: what they read of videos, their encoders of videos and captions, and their scorer."""

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
    """What is read of an expert; the parts of all experts, one after another, make the one vector of a video.

    Args:
        whole: a vector of the whole video, which comes first: the mean or the largest values of all its vectors.
        tokens: how many of its vectors are read after that; of more, random ones if `sampled`, otherwise the first.
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
        """Values of a video: its vectors, a time for each, and how many tokens it has; -1: the expert saw nothing."""
        return self.rows * (self.width + 1) + 1


class VideoSettings(ImageEncoderSettings):
    """Settings of all encoders of videos. The image of a pair is then a video: the vectors that experts made of it."""

    noun: ClassVar[str] = "video"
    experts: dict[str, PositiveInt] = Field(
        description="the experts by name, each with the length of its vectors; in a recipe only"
    )


class CeSettings(VideoSettings):
    """CE: a vector for each expert, gated by the vectors of the other experts. Liu et al., BMVC 2019."""

    network: ClassVar[str] = "goalgrid.retrieval.components.video.networks:CollaborativeExperts"
    encoder: Literal["ce"] = Field(description=IMAGE_ENCODER)
    tokens: dict[str, PositiveInt] = Field(
        {}, description="experts whose vectors NetVLAD pools, with the number that it reads; of others the mean is read"
    )
    clusters: dict[str, PositiveInt] = Field({}, description="NetVLAD's clusters for each of these experts")

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
                raise ValueError(f"expert {name!r} needs both a number of tokens and of clusters")
        return self


class MmtSettings(VideoSettings):
    """MMT: a transformer over the vectors of all experts, in time. Gabeur et al., ECCV 2020."""

    network: ClassVar[str] = "goalgrid.retrieval.components.video.networks:MultiModalTransformer"
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


class ExpertTextSettings(Pretrained, TextEncoderSettings):
    """The text side of CE and MMT: a gated vector of a caption for each expert, and how much each expert counts."""

    network: ClassVar[str] = "goalgrid.retrieval.components.video.networks:ExpertTexts"
    boundaries: ClassVar[bool] = True
    encoder: Literal["gated"] = Field(description=TEXT_ENCODER)
    frozen: StrictBool = Field(False, description="the backbone does not learn, and its features are cached")
    experts: PositiveInt = Field(description="how many experts a video has")
    clusters: NonNegativeInt = Field(
        0, description="clusters of NetVLAD, which pools the tokens' states; 0: the state of the first token"
    )
    tokens: Annotated[PositiveInt, Unit("tokens"), ReadWhere(lambda own, _: own.clusters > 0, "clusters above 0")] = (
        Field(37, description="tokens that NetVLAD reads; a shorter caption is padded, as in CE")
    )
    dropout: Dropout = Field(0.0, description="share of the values set to zero before experts are weighed")

    @property
    def feature_network(self) -> "TransformerSettings | None":
        if not self.frozen or self.word_drop:
            return None
        network = {"weights": self.weights, "architecture": self.architecture, "frozen": True}
        return TransformerSettings.model_validate({"pooling": "none", "preparation": self.preparation, **network})


class MixtureSettings(ScorerSettings):
    """CE's and MMT's: the cosines of a video's vectors with the caption's, expert by expert, weighed by the caption."""

    network: ClassVar[str] = "goalgrid.retrieval.components.video.networks:Mixture"
    kind: Literal["mixture"] = Field(description=KIND)
