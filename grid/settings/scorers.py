"""Settings of the scorers, which make scores of what a model embedded, and of fusion, which looks at both sides."""

from typing import Annotated, ClassVar, Literal

from pydantic import Field, PositiveFloat, PositiveInt

from goalgrid.grid.settings.base import ReadWhere, Settings
from goalgrid.grid.settings.pretrained_networks import PretrainedFile
from goalgrid.grid.settings.user_modules import UserModuleKind, UserModuleSettings

KIND = "which scorer; changing it drops the previous scorer's settings"
Direction = Literal["t2i", "i2t"]
"""t2i: words attend to regions; i2t: regions attend to words."""
ScorePooling = Literal["mean", "lse", "max", "sum"]


class ScorerSettings(Settings):
    """Base class of the settings of scorers, which add `kind`."""

    network: ClassVar[str] = ""
    """The class of the scorer of sets, `module:name`; empty: it reads single vectors."""


class ProductSettings(ScorerSettings):
    """The product of unit vectors, one an image and one a caption: their cosine."""

    kind: Literal["product"] = Field(default="product", description=KIND)


class AttentionSettings(ScorerSettings):
    """Base class of cross-attention scorers, which read sets of vectors: regions of an image, words of a caption."""

    sharpness: PositiveFloat = Field(description="lambda: factor on attention before its softmax")


class ScanSettings(AttentionSettings):
    """SCAN: one side attends to the other, and the cosines with what was attended to are pooled."""

    network: ClassVar[str] = "goalgrid.retrieval.scorers.cross_attention:Scan"
    kind: Literal["scan"] = Field(description=KIND)
    direction: Direction = Field(description="t2i: words attend to regions; i2t: regions attend to words")
    pooling: ScorePooling = Field("mean", description="pooling of the cosines; lse: log-sum-exp, which may exceed 1")
    lse_sharpness: Annotated[PositiveFloat, ReadWhere(lambda part, _: part.pooling == "lse", "pooling = lse")] = Field(
        6.0, description="lambda of the log-sum-exp"
    )


class BfanSettings(AttentionSettings):
    """BFAN: SCAN in both directions, added up, without attention that is no stronger than the rest."""

    network: ClassVar[str] = "goalgrid.retrieval.scorers.cross_attention:Bfan"
    kind: Literal["bfan"] = Field(description=KIND)
    focal: Literal["equal", "prob"] = Field(
        description="value that attention is compared with: its mean, or a weighted mean"
    )
    sharpness: PositiveFloat = Field(20.0, description="lambda: factor on attention before its softmax")


class SgrafSettings(AttentionSettings):
    """Base class of SGR and SAF: vectors of similarity between words and what they attend to, and of whole sets."""

    sharpness: PositiveFloat = Field(9.0, description="lambda: factor on attention before its softmax")
    width: PositiveInt = Field(256, description="dimension of a similarity vector")
    dropout: Annotated[float, Field(ge=0, lt=1)] = Field(
        0.4, description="dropout in the attention that summarises a whole set"
    )


class SgrSettings(SgrafSettings):
    """SGR: the vectors of similarity reason over their full graph; the node of the whole sets is scored."""

    network: ClassVar[str] = "goalgrid.retrieval.scorers.similarity:Sgr"
    kind: Literal["sgr"] = Field(description=KIND)
    steps: PositiveInt = Field(3, description="reasoning steps over the graph")


class SafSettings(SgrafSettings):
    """SAF: a learnt filter weighs the vectors of similarity; their sum is scored."""

    network: ClassVar[str] = "goalgrid.retrieval.scorers.similarity:Saf"
    kind: Literal["saf"] = Field(description=KIND)


class OwnScorerSettings(UserModuleSettings, ScorerSettings):
    """A scorer of the user's own. It reads sets of vectors: regions of an image, words of a caption."""

    network: ClassVar[str] = "goalgrid.retrieval.own_networks:OwnScorer"
    of: ClassVar[UserModuleKind] = "scorer"
    kind: Literal["own"] = Field(description=KIND)


AnyScorer = Annotated[
    ProductSettings | ScanSettings | BfanSettings | SgrSettings | SafSettings | OwnScorerSettings,
    Field(discriminator="kind"),
]

FUSION = "which fusion encoder; changing it drops the previous one's settings"


class FusionSettings(Settings):
    """Base class of the settings of fusion encoders."""

    kind: str

    @property
    def file(self) -> PretrainedFile | None:
        """The file of weights with which the whole model begins; None: its parts begin by themselves."""
        return None

    @property
    def rerank_k(self) -> int:
        """Number of a query's answers that a second stage reranks in the test; 0: there is no second stage."""
        return 0


class NoFusionSettings(FusionSettings):
    """An image and a caption are compared in the joint space alone."""

    kind: Literal["none"] = Field(default="none", description=FUSION)


AnyFusion = Annotated[NoFusionSettings | FusionSettings, Field(discriminator="kind")]
