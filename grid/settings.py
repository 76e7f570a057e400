"""The scientific settings of one trial: everything that its result depends on, and nothing else.

Paths, resources, worker counts and logging are no settings; they stand in the grid file's [data] and [resources].
Every field has a dotted name (`train.lr`) by which a grid file sets or sweeps it.
"""

from typing import Annotated, Any, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field

ImageInput = Literal["images", "features"]
"""What an image encoder reads: raw pixels, or vectors computed before."""


class Settings(BaseModel):
    """Immutable, complete, and closed: an unknown name is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class IdentityDefault:
    """Marks a field that was added after its peers: while it has this value, it is left out of a trial's identity.

    The value is what the program silently did before the field existed; it never changes, whatever the default does.
    """

    def __init__(self, value: Any) -> None:
        self.value = value


class DatasetSettings(Settings):
    """Which pairs, by which protocol."""

    name: str
    protocol: str = Field(description="evaluation protocol, printed under tables, e.g. flickr8k-1k")
    min_count: Annotated[int, Field(ge=1)] = Field(
        4, description="a word is known from this many training captions' uses"
    )
    max_words: Annotated[int, Field(ge=1)] = Field(60, description="longer captions are cut")


class CnnSettings(Settings):
    """A small convolutional network on raw images."""

    input: ClassVar[ImageInput] = "images"
    encoder: Literal["cnn"]
    size: Annotated[int, Field(ge=8)] = Field(description="side of the square that images are resized to, in pixels")
    channels: Annotated[int, Field(ge=1)] = Field(32, description="of the first layer; each further one doubles it")
    layers: Annotated[int, Field(ge=1)] = Field(3, description="each halves the side")
    pooling: Literal["mean", "max"] = "mean"
    flip: bool = Field(False, description="mirror half of the training images")


class LinearSettings(Settings):
    """One linear map on precomputed features, pooled over regions where there are any."""

    input: ClassVar[ImageInput] = "features"
    encoder: Literal["linear"]
    normalize: bool = Field(True, description="bring each input vector to unit length first, as VSE++ does")
    pooling: Literal["mean", "max"] = "mean"
    dropout: Annotated[float, Field(ge=0, lt=1)] = 0.0


ImageSettings = Annotated[CnnSettings | LinearSettings, Field(discriminator="encoder")]


class BowSettings(Settings):
    """Mean (or maximum) of word embeddings: no order, and fast."""

    encoder: Literal["bow"]
    word_dim: Annotated[int, Field(ge=1)] = 300
    pooling: Literal["mean", "max"] = "mean"
    dropout: Annotated[float, Field(ge=0, lt=1)] = 0.0


class GruSettings(Settings):
    """VSE++'s text encoder: the last state of a one-layer GRU."""

    encoder: Literal["gru"]
    word_dim: Annotated[int, Field(ge=1)] = 300
    dropout: Annotated[float, Field(ge=0, lt=1)] = 0.0


class BiGruSettings(Settings):
    """A GRU read in both directions, its states averaged over directions and pooled over words."""

    encoder: Literal["bigru"]
    word_dim: Annotated[int, Field(ge=1)] = 300
    pooling: Literal["mean", "max"] = "mean"
    dropout: Annotated[float, Field(ge=0, lt=1)] = 0.0


TextSettings = Annotated[BowSettings | GruSettings | BiGruSettings, Field(discriminator="encoder")]


class ModelSettings(Settings):
    """Two encoders into one space of unit vectors."""

    image: ImageSettings
    text: TextSettings
    dim: Annotated[int, Field(ge=2)] = Field(1024, description="of the joint space")


class TrainSettings(Settings):
    """One loop for all recipes."""

    epochs: Annotated[int, Field(ge=1)]
    batch_size: Annotated[int, Field(ge=2)] = Field(128, description="pairs; a batch of one has no negatives")
    optimizer: Literal["adam", "adamw"] = "adam"
    lr: Annotated[float, Field(gt=0)] = 2e-4
    weight_decay: Annotated[float, Field(ge=0)] = 0.0
    decay_every: Annotated[int, Field(ge=1)] = Field(15, description="epochs between two steps of the learning rate")
    decay_factor: Annotated[float, Field(gt=0, le=1)] = 0.1
    warmup_epochs: Annotated[int, Field(ge=0), IdentityDefault(0)] = Field(
        0, description="first epochs on all negatives instead of the hardest, for objectives that mine"
    )
    clip_norm: Annotated[float, Field(gt=0)] = Field(2.0, description="bound on the norm of the whole gradient")
    selection: Literal["best-val-rsum", "last"] = Field(
        "best-val-rsum", description="which checkpoint's test metrics count"
    )


class ObjectiveSettings(Settings):
    """An objective with all its parameters, defaults filled in."""

    name: str
    variant: Literal["paper", "released"] = "paper"
    parameters: dict[str, int | float | bool | str | None] = {}


class TrialSettings(Settings):
    """A cell with a seed: one training, one record."""

    schema_version: Literal[1] = 1
    dataset: DatasetSettings
    recipe: str
    model: ModelSettings
    train: TrainSettings
    objective: ObjectiveSettings
    seed: Annotated[int, Field(ge=0)]
