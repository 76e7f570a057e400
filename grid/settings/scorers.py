"""Settings of scorers, which score pairs of embeddings, and of fusion encoders, which read both sides jointly."""

from typing import Annotated, ClassVar, Literal

from pydantic import Field, PositiveFloat, PositiveInt

from goalgrid.grid.settings.base import ReadWhere, Settings
from goalgrid.grid.settings.pretrained_networks import PretrainedFile
from goalgrid.grid.settings.user_modules import UserModuleKind, UserModuleSettings

KIND = "scorer; changing it resets the previous scorer's settings"
Direction = Literal["t2i", "i2t"]
"""t2i: words attend to regions; i2t: regions attend to words."""
ScorePooling = Literal["mean", "lse", "max", "sum"]


class ScorerSettings(Settings):
    """Base class of the settings of scorers; subclasses add `kind`."""

    network: ClassVar[str] = ""
    """Class of the scorer of sets, as `module:name`; empty if it reads single vectors."""


class ProductSettings(ScorerSettings):
    """Cosine similarity: the dot product of the unit vectors of image and caption."""

    kind: Literal["product"] = Field(default="product", description=KIND)


class AttentionSettings(ScorerSettings):
    """Base class of cross-attention scorers, which read sets of vectors: regions of an image, words of a caption."""

    sharpness: PositiveFloat = Field(description="lambda: inverse temperature of the attention's softmax")


class ScanSettings(AttentionSettings):
    """SCAN: one side attends to the other, and the cosines with the attended vectors are pooled."""

    network: ClassVar[str] = "goalgrid.retrieval.scorers.cross_attention:Scan"
    kind: Literal["scan"] = Field(description=KIND)
    direction: Direction = Field(description="t2i: words attend to regions; i2t: regions attend to words")
    pooling: ScorePooling = Field("mean", description="pooling of the cosines; lse: log-sum-exp, which may exceed 1")
    lse_sharpness: Annotated[PositiveFloat, ReadWhere(lambda part, _: part.pooling == "lse", "pooling = lse")] = Field(
        6.0, description="lambda of the log-sum-exp"
    )


class BfanSettings(AttentionSettings):
    """BFAN: the sum of SCAN in both directions, where attention that is not above the focal threshold is removed."""

    network: ClassVar[str] = "goalgrid.retrieval.scorers.cross_attention:Bfan"
    kind: Literal["bfan"] = Field(description=KIND)
    focal: Literal["equal", "prob"] = Field(
        description="threshold of the focal attention. equal: mean attention; prob: attention-weighted mean"
    )
    sharpness: PositiveFloat = Field(20.0, description="lambda: inverse temperature of the attention's softmax")


class SgrafSettings(AttentionSettings):
    """Base class of SGR and SAF, which compute similarity vectors between words and attended regions, and globally."""

    sharpness: PositiveFloat = Field(9.0, description="lambda: inverse temperature of the attention's softmax")
    width: PositiveInt = Field(256, description="dimension of a similarity vector")
    dropout: Annotated[float, Field(ge=0, lt=1)] = Field(
        0.4, description="dropout probability in the attention that summarises a whole set"
    )


class SgrSettings(SgrafSettings):
    """SGR: graph reasoning over the similarity vectors (fully connected graph); the global node is scored."""

    network: ClassVar[str] = "goalgrid.retrieval.scorers.similarity:Sgr"
    kind: Literal["sgr"] = Field(description=KIND)
    steps: PositiveInt = Field(3, description="reasoning steps over the graph")


class SafSettings(SgrafSettings):
    """SAF: a learnt filter weights the similarity vectors, and their sum is scored."""

    network: ClassVar[str] = "goalgrid.retrieval.scorers.similarity:Saf"
    kind: Literal["saf"] = Field(description=KIND)


class OwnScorerSettings(UserModuleSettings, ScorerSettings):
    """A user-defined scorer, which reads sets of vectors: regions of an image and words of a caption."""

    network: ClassVar[str] = "goalgrid.retrieval.own_networks:OwnScorer"
    of: ClassVar[UserModuleKind] = "scorer"
    kind: Literal["own"] = Field(description=KIND)


AnyScorer = Annotated[
    ProductSettings | ScanSettings | BfanSettings | SgrSettings | SafSettings | OwnScorerSettings,
    Field(discriminator="kind"),
]

FUSION = "fusion encoder; changing it resets the previous fusion encoder's settings"


class FusionSettings(Settings):
    """Base class of the settings of fusion encoders."""

    kind: str

    @property
    def file(self) -> PretrainedFile | None:
        """The checkpoint that initialises the whole model; None if its parts are initialised separately."""
        return None

    @property
    def rerank_k(self) -> int:
        """Number of top results per query that a second stage reranks in the test; 0 without a second stage."""
        return 0


class NoFusionSettings(FusionSettings):
    """No fusion encoder: images and captions are compared only in the joint space."""

    kind: Literal["none"] = Field(default="none", description=FUSION)


AnyFusion = Annotated[NoFusionSettings | FusionSettings, Field(discriminator="kind")]
