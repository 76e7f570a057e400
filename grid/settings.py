"""The scientific settings of one trial: everything that its result depends on, and nothing else.

Paths, resources, worker counts and logging are no settings; they stand in the grid file's [data] and [resources].
Every field has a dotted name (`train.lr`) by which a grid file sets or sweeps it.
"""

from typing import Annotated, Literal

from pydantic import Field, NonNegativeFloat, NonNegativeInt, PositiveFloat, PositiveInt

from grid.encoders import ModelSettings
from grid.settings_base import IdentityDefault, Name, Settings


class DatasetSettings(Settings):
    """Which pairs, by which protocol."""

    name: Name
    protocol: str = Field(description="evaluation protocol, printed under tables, e.g. flickr8k-1k")
    min_count: PositiveInt = Field(4, description="a word is known from this many training captions' uses")
    max_words: PositiveInt = Field(60, description="longer captions are cut")
    val_images: Annotated[PositiveInt | None, IdentityDefault(None)] = Field(
        default=None, description="validate on the first so many images; the papers' code takes 1,000"
    )


class TrainSettings(Settings):
    """One loop for all recipes."""

    epochs: PositiveInt
    batch_size: Annotated[int, Field(ge=2)] = Field(128, description="pairs; a batch of one has no negatives")
    optimizer: Literal["adam", "adamw"] = "adam"
    lr: PositiveFloat = 2e-4
    weight_decay: NonNegativeFloat = 0.0
    decay_every: PositiveInt = Field(15, description="epochs between two steps of the learning rate")
    decay_factor: Annotated[float, Field(gt=0, le=1)] = 0.1
    warmup_epochs: Annotated[NonNegativeInt, IdentityDefault(0)] = Field(
        0, description="first epochs on all negatives instead of the hardest, for objectives that mine"
    )
    text_lr_factor: Annotated[PositiveFloat, IdentityDefault(1.0)] = Field(
        1.0, description="of the text backbone's learning rate, times lr"
    )
    image_lr_factor: Annotated[PositiveFloat, IdentityDefault(1.0)] = Field(
        1.0, description="of the image backbone's learning rate, times lr"
    )
    frozen_epochs: Annotated[NonNegativeInt, IdentityDefault(0)] = Field(
        0, description="first epochs in which the image backbone stays as it is"
    )
    ramp_epochs: Annotated[NonNegativeInt, IdentityDefault(0)] = Field(
        0, description="epochs after those in which the loss rises linearly from 0 to its full size"
    )
    drop_last: Annotated[bool, IdentityDefault(False)] = Field(
        False, description="leave out the last batch of an epoch when it is smaller"
    )
    precision: Annotated[Literal["fp32", "bf16"], IdentityDefault("fp32")] = Field(
        "fp32", description="of the encoders' arithmetic; objectives always compute in fp32"
    )
    compile: Annotated[bool, IdentityDefault(False)] = Field(
        False, description="run the encoders through torch.compile: faster on a GPU, and rounded otherwise"
    )
    clip_norm: PositiveFloat = Field(2.0, description="bound on the norm of the whole gradient")
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
    seed: NonNegativeInt
    starts_from: Annotated[str | None, IdentityDefault(None)] = Field(
        default=None, description="id of the trial whose best checkpoint this one fine-tunes"
    )
