"""Settings of the text encoders: how a caption becomes vectors."""

from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import Field, PositiveInt, StrictBool, model_validator

from goalgrid.grid.settings.base import Dropout, IdentityDefault, Settings, Unit
from goalgrid.grid.settings.poolings import HAS_HEAD, PoolingSettings
from goalgrid.grid.settings.pretrained_networks import PUBLISHED, RANDOM, TRAINS, Call, Pretrained, Trains
from goalgrid.grid.settings.user_modules import UserModuleKind, UserModuleSettings

CALLED = (
    "published: captions are cut at the network's own places, after the prompt exactly as written; plain: at "
    "dataset.max_words, after the prompt and a blank"
)
UNCUT = 1_000_000
"""More words than any caption has."""
TEXT_ENCODER = "the text network; another choice drops the settings of the one before"


class TextEncoderSettings(Settings):
    """The settings that every text encoder has, beside `boundaries`."""

    network: ClassVar[str]
    """What makes the encoder of the settings, a number of words, `model.dim` and folders of weights: `module:name`."""
    word_drop: Annotated[float, Field(ge=0, lt=1), IdentityDefault(0.0)] = Field(
        0.0, description="share of words masked, replaced or left out in training"
    )
    preparation: Annotated[Literal["none", "x-vlm", "mmt"], IdentityDefault("none")] = Field(
        "none",
        description="captions as a model's own code prepares them: x-vlm: lower case, no punctuation, 30 words; mmt: "
        "lower case, a full stop at the end, 30 words",
    )
    max_words: Annotated[PositiveInt | None, Unit("words or word pieces"), IdentityDefault(None)] = Field(
        default=None, description="longer captions are cut, where dataset.max_words is not less; none: by that alone"
    )

    def longest(self, dataset_words: int) -> int:
        """Words or word pieces at which captions are cut, on a data set with this `max_words`."""
        return min(dataset_words, self.max_words or dataset_words)

    def prompted(self, caption: str) -> str:
        """Return the caption after its prompt, as the encoder reads it."""
        return caption

    @property
    def tokenizer(self) -> Pretrained | None:
        """The weights beside which the tokenizer lies whose pieces the encoder reads; None: it reads words."""
        return self if isinstance(self, Pretrained) and self.weights != RANDOM else None

    @property
    def feature_network(self) -> "TransformerSettings | None":
        """A network that does not run in training, because its features are computed before; None: there is none."""
        return None


class WordSettings(TextEncoderSettings):
    """Settings of every encoder that embeds words of the training captions."""

    word_dim: Annotated[PositiveInt, Unit("values")] = Field(300, description="width of the word embeddings")
    dropout: Dropout = Field(0.0, description="share of the values set to zero in training")
    boundaries: Annotated[StrictBool, IdentityDefault(False)] = Field(
        False, description="mark a caption's <start> and <end>"
    )


class BowSettings(WordSettings, PoolingSettings):
    """Word embeddings, pooled: no order, and fast."""

    network: ClassVar[str] = "goalgrid.retrieval.encoders.text:Bow"
    encoder: Literal["bow"] = Field(description=TEXT_ENCODER)


class GruSettings(WordSettings):
    """VSE++'s text encoder: the last state of a one-layer GRU."""

    network: ClassVar[str] = "goalgrid.retrieval.encoders.text:Gru"
    encoder: Literal["gru"] = Field(description=TEXT_ENCODER)


class BiGruSettings(WordSettings, PoolingSettings):
    """A GRU read in both directions, its states averaged over directions and pooled over words."""

    network: ClassVar[str] = "goalgrid.retrieval.encoders.text:BiGru"
    encoder: Literal["bigru"] = Field(description=TEXT_ENCODER)


class TransformerSettings(Pretrained, PoolingSettings, TextEncoderSettings):
    """A `transformers` text network, its token states projected and pooled. With random weights it reads words."""

    network: ClassVar[str] = "goalgrid.retrieval.encoders.text:Transformer"
    boundaries: ClassVar[bool] = True
    encoder: Literal["transformer"] = Field(default="transformer", description=TEXT_ENCODER)
    frozen: StrictBool = Field(False, description="the backbone does not learn, and its features are cached")
    trains: Annotated[Trains, IdentityDefault(None)] = Field(None, description=TRAINS)
    output: Annotated[Literal["states", "projected"], IdentityDefault("states")] = Field(
        "states",
        description="a state a word piece; or the network's own vector: that which two towers compare, or that of a "
        "sentence-transformers folder (pooling and dense layers)",
    )
    head: Annotated[Literal["linear", "none"], IdentityDefault("linear")] = Field(
        "linear", description="the trained layer on the backbone's vectors; none: they are the embeddings"
    )
    init: Annotated[Literal["xavier", "torch"], IdentityDefault("xavier"), HAS_HEAD] = Field(
        "torch", description="first weights of the projection: PyTorch's own, or VSE++'s"
    )
    call: Annotated[Call, IdentityDefault("plain")] = Field("plain", description=CALLED)
    prompt: Annotated[str, IdentityDefault("")] = Field(
        "",
        description="words put before every caption; published: those that the weights' "
        "config_sentence_transformers.json has by default, if any",
    )

    @model_validator(mode="before")
    @classmethod
    def _called(cls, content: Any) -> Any:
        return cls._with_call(cls._with_learning(content), prompt=PUBLISHED)

    @model_validator(mode="after")
    def _parts_are_there(self) -> Self:
        self._check_parts()
        return self

    def longest(self, dataset_words: int) -> int:
        """Word pieces at which captions are cut; as published, only `max_words` or the network's places cut them."""
        return self.max_words or UNCUT if self.call == PUBLISHED else super().longest(dataset_words)

    def prompted(self, caption: str) -> str:
        if self.call == PUBLISHED or not self.prompt:
            return self.prompt + caption
        return f"{self.prompt} {caption}"

    @property
    def feature_network(self) -> "TransformerSettings | None":
        return self if self.frozen and not self.word_drop else None


class OwnTextSettings(UserModuleSettings, TextEncoderSettings):
    """A text encoder of the user's own, which reads words of the training captions."""

    network: ClassVar[str] = "goalgrid.retrieval.own_networks:text_encoder"
    of: ClassVar[UserModuleKind] = "text encoder"
    encoder: Literal["own"] = Field(description=TEXT_ENCODER)
    boundaries: Annotated[StrictBool, IdentityDefault(False)] = Field(
        False, description="mark a caption's <start> and <end>"
    )


TextSettings = Annotated[
    BowSettings | GruSettings | BiGruSettings | TransformerSettings | OwnTextSettings, Field(discriminator="encoder")
]
