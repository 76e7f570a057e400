"""Settings of the text encoders, which embed captions."""

from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import Field, PositiveInt, StrictBool, model_validator

from goalgrid.grid.settings.base import Dropout, IdentityDefault, Settings, Unit
from goalgrid.grid.settings.poolings import HAS_HEAD, PoolingSettings
from goalgrid.grid.settings.pretrained_networks import PUBLISHED, RANDOM, TRAINS, Call, Pretrained, Trains
from goalgrid.grid.settings.user_modules import UserModuleKind, UserModuleSettings

CALLED = (
    "published: add the prompt exactly as written, and truncate captions to the network's maximum length; plain: add "
    "the prompt and a space, and truncate captions to dataset.max_words"
)
UNCUT = 1_000_000
"""Larger than the number of words in any caption."""
TEXT_ENCODER = "text encoder; changing it resets the previous encoder's settings"


class TextEncoderSettings(Settings):
    """Base class of the settings of text encoders; subclasses add `boundaries`."""

    network: ClassVar[str]
    """Factory of the encoder, as `module:name`; takes the settings, vocabulary size, `model.dim` and weight folders."""
    word_drop: Annotated[float, Field(ge=0, lt=1), IdentityDefault(0.0)] = Field(
        0.0, description="fraction of words that are masked, replaced or dropped in training"
    )
    preparation: Annotated[Literal["none", "x-vlm", "mmt"], IdentityDefault("none")] = Field(
        "none",
        description="caption preprocessing of a model's released code. x-vlm: lower case, no punctuation, 30 words; "
        "mmt: "
        "lower case, full stop at the end, 30 words",
    )
    max_words: Annotated[PositiveInt | None, Unit("words or word pieces"), IdentityDefault(None)] = Field(
        default=None,
        description="maximum caption length, in addition to dataset.max_words (the smaller one "
        "applies); none: only "
        "dataset.max_words applies",
    )

    def longest(self, dataset_words: int) -> int:
        """Return the maximum caption length, in words or word pieces, for a data set with this `max_words`."""
        return min(dataset_words, self.max_words or dataset_words)

    def prompted(self, caption: str) -> str:
        """Return the caption with the prompt in front, as the encoder reads it."""
        return caption

    @property
    def tokenizer(self) -> Pretrained | None:
        """The weights whose folder holds the encoder's tokenizer; None if the encoder reads words."""
        return self if isinstance(self, Pretrained) and self.weights != RANDOM else None

    @property
    def feature_network(self) -> "TransformerSettings | None":
        """The frozen network whose features are computed once and cached; None if there is none."""
        return None


class WordSettings(TextEncoderSettings):
    """Base class of the settings of encoders with word embeddings learnt on the training captions."""

    word_dim: Annotated[PositiveInt, Unit("values")] = Field(300, description="dimension of the word embeddings")
    dropout: Dropout = Field(0.0, description="dropout probability")
    boundaries: Annotated[StrictBool, IdentityDefault(False)] = Field(
        False, description="add <start> and <end> tokens to each caption"
    )


class BowSettings(WordSettings, PoolingSettings):
    """Bag of words: pooled word embeddings, which ignore word order."""

    network: ClassVar[str] = "goalgrid.retrieval.encoders.text:Bow"
    encoder: Literal["bow"] = Field(description=TEXT_ENCODER)


class GruSettings(WordSettings):
    """VSE++'s text encoder: the last state of a one-layer GRU."""

    network: ClassVar[str] = "goalgrid.retrieval.encoders.text:Gru"
    encoder: Literal["gru"] = Field(description=TEXT_ENCODER)


class BiGruSettings(WordSettings, PoolingSettings):
    """A bidirectional GRU, whose states are averaged over directions and pooled over words."""

    network: ClassVar[str] = "goalgrid.retrieval.encoders.text:BiGru"
    encoder: Literal["bigru"] = Field(description=TEXT_ENCODER)


class TransformerSettings(Pretrained, PoolingSettings, TextEncoderSettings):
    """A `transformers` text network, with token states projected and pooled. With random weights it reads words."""

    network: ClassVar[str] = "goalgrid.retrieval.encoders.text:Transformer"
    boundaries: ClassVar[bool] = True
    encoder: Literal["transformer"] = Field(default="transformer", description=TEXT_ENCODER)
    frozen: StrictBool = Field(False, description="freeze the backbone and cache its features")
    trains: Annotated[Trains, IdentityDefault(None)] = Field(None, description=TRAINS)
    output: Annotated[Literal["states", "projected"], IdentityDefault("states")] = Field(
        "states",
        description="output of the backbone. states: one state per word piece; projected: the network's own "
        "embedding, of a "
        "two-tower network or of a sentence-transformers folder (with its pooling and dense layers)",
    )
    head: Annotated[Literal["linear", "none"], IdentityDefault("linear")] = Field(
        "linear", description="trained layer on the backbone's vectors; none: use these vectors as embeddings"
    )
    init: Annotated[Literal["xavier", "torch"], IdentityDefault("xavier"), HAS_HEAD] = Field(
        "torch", description="initialisation of the projection. torch: PyTorch's default; xavier: as in VSE++"
    )
    call: Annotated[Call, IdentityDefault("plain")] = Field("plain", description=CALLED)
    prompt: Annotated[str, IdentityDefault("")] = Field(
        "",
        description="text put in front of every caption; published: the default prompt in the weights' "
        "config_sentence_transformers.json, if any",
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
        """Return the maximum caption length in word pieces; a published call ignores the data set's `max_words`."""
        return self.max_words or UNCUT if self.call == PUBLISHED else super().longest(dataset_words)

    def prompted(self, caption: str) -> str:
        if self.call == PUBLISHED or not self.prompt:
            return self.prompt + caption
        return f"{self.prompt} {caption}"

    @property
    def feature_network(self) -> "TransformerSettings | None":
        return self if self.frozen and not self.word_drop else None


class OwnTextSettings(UserModuleSettings, TextEncoderSettings):
    """A user-defined text encoder, which reads words of the training captions' vocabulary."""

    network: ClassVar[str] = "goalgrid.retrieval.own_networks:text_encoder"
    of: ClassVar[UserModuleKind] = "text encoder"
    encoder: Literal["own"] = Field(description=TEXT_ENCODER)
    boundaries: Annotated[StrictBool, IdentityDefault(False)] = Field(
        False, description="add <start> and <end> tokens to each caption"
    )


TextSettings = Annotated[
    BowSettings | GruSettings | BiGruSettings | TransformerSettings | OwnTextSettings, Field(discriminator="encoder")
]
