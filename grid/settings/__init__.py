"""The scientific settings of one trial: everything that its result depends on, and nothing else.

Every field has a dotted name (`train.lr`) by which a grid file sets or sweeps it.
"""

import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import (
    AfterValidator,
    Field,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    PrivateAttr,
    StrictBool,
)

from goalgrid.grid.errors import UserError
from goalgrid.grid.objectives import OURS, unknown_objective
from goalgrid.grid.objectives.parameters import ObjectiveEntry
from goalgrid.grid.settings.base import IdentityDefault, Name, NoIdentity, ReadWhere, Settings, Unit
from goalgrid.grid.settings.model import ModelSettings
from goalgrid.grid.settings.user_modules import registered

RANKED = "offline-negatives"
"""The component of an objective that needs the training split ranked."""


class Reader(NamedTuple):
    """Readers of data and training settings: the model, whether its objective warms up, the components it needs."""

    model: ModelSettings
    warms_up: bool
    needs: tuple[str, ...]


_IN_STEPS = ReadWhere(lambda part, _: part.schedule == "steps", "schedule = steps")
_LINEAR = ReadWhere(lambda part, _: part.schedule == "linear", "schedule = linear")
_DECAYS = ReadWhere(lambda part, _: part.weight_decay > 0, "weight_decay above 0")
_KNOWS_DECAY = ReadWhere(lambda part, _: part.weight_decay > 0 or part.optimizer == "ranger", _DECAYS.words)
_WORDS = ReadWhere(lambda _, by: by.model.text.tokenizer is None, "a text encoder that reads words")
_OWN = ReadWhere(lambda part, _: part.vocabulary is None, "no dataset.vocabulary")
_TEXT_LEARNS = ReadWhere(lambda _, by: not getattr(by.model.text, "frozen", True), "a text backbone that learns")
_IMAGE_LEARNS = ReadWhere(lambda _, by: not getattr(by.model.image, "frozen", True), "an image backbone that learns")
_HELD = ReadWhere(
    lambda part, by: part.ramp_epochs > 0 or _IMAGE_LEARNS.condition(part, by),
    f"{_IMAGE_LEARNS.words}, or ramp_epochs above 0",
)
_WARMS_UP = ReadWhere(
    lambda _, by: by.warms_up,
    "an objective that mines the hardest negatives and may mine all, or reads estimates of its pairs, e.g. ncr",
)
_OFFLINE = ReadWhere(lambda _, by: RANKED in by.needs, "an objective that reads offline negatives, e.g. aoq")
_RANKED = ReadWhere(lambda part, by: part.ranker is not None and RANKED in by.needs, "train.ranker")
_PICTURES = ReadWhere(
    lambda _, by: by.model.image.view is not None and by.model.image.feature_network is None,
    "a recipe that reads pictures at each step",
)
_NOISY = ReadWhere(lambda part, _: part.noise > 0, "dataset.noise above 0")


class DatasetSettings(Settings):
    """The data set, its protocol and how its captions are read."""

    name: Name = Field(description="name of the data set, as in the grid's axis")
    protocol: str = Field(description="evaluation protocol, printed under tables, e.g. flickr8k-1k")
    min_count: Annotated[PositiveInt, Unit("uses"), _WORDS, _OWN] = Field(
        4, description="how often the training captions must use a word for it to enter the vocabulary"
    )
    max_words: Annotated[PositiveInt, Unit("words or word pieces")] = Field(
        60, description="length at which captions are truncated"
    )
    words: Annotated[Literal["plain", "nltk"], IdentityDefault("plain"), _WORDS] = Field(
        "plain",
        description="plain: words and numbers; nltk: by its word tokenizer, with punctuation, as the published codes",
    )
    vocabulary: Annotated[str | None, IdentityDefault(None), _WORDS] = Field(
        default=None,
        pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*(/[A-Za-z0-9][A-Za-z0-9._-]*)*$",
        description="vocabulary file of a published code, .pkl or .json, by its path in the data set's folder; none: "
        "build it from the training captions",
    )
    train_images: Annotated[PositiveInt | None, Unit("images"), IdentityDefault(None)] = Field(
        default=None, description="train on the first N images and their words only; none: on all"
    )
    val_images: Annotated[PositiveInt | None, Unit("images"), IdentityDefault(None)] = Field(
        default=None, description="validate on the first N images; none: on all; the papers' code takes 1,000"
    )
    noise: Annotated[float, Field(ge=0, lt=1), IdentityDefault(0.0)] = Field(
        0.0, description="share of the training captions that swap images among them, as NCR's noisy pairs"
    )
    noise_seed: Annotated[NonNegativeInt, IdentityDefault(0), _NOISY] = Field(
        0, description="seed of the shuffle by dataset.noise, the same for all seeds of a grid"
    )
    cache: Annotated[Literal["shrunk"] | None, IdentityDefault(None), _PICTURES] = Field(
        default=None,
        description="shrunk: decode pictures once for all trials and keep them, with a shorter side of 1.15 times that "
        "of a view; changes pixels, hence trial ids; none: decode files at each use",
    )
    candidates: Annotated[str | None, IdentityDefault(None), _OFFLINE] = Field(
        default=None,
        pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*(/[A-Za-z0-9][A-Za-z0-9._-]*)*$",
        description="folder with AOQ's i2t*.npy and t2i*.npy, in the data set's folder; none: train.ranker ranks",
    )


def _checkpoint(name: str | None) -> str | None:
    if name is not None and not re.fullmatch(r"sha256:[0-9a-f]{64}", name):
        raise ValueError(
            "it should be file:PATH, the file of a published checkpoint, in [set] or [sweep] of a grid file"
        )
    return name


class TrainSettings(Settings):
    """One loop for all recipes."""

    epochs: Annotated[NonNegativeInt, Unit("epochs")] = Field(
        description="passes over the training captions; 0: evaluate the model as it starts"
    )
    batch_size: Annotated[int, Field(ge=2), Unit("pairs")] = Field(
        128, description="pairs of image and caption in a batch; at least 2, since one pair has no negatives"
    )
    captions: Annotated[Literal["all", "one"], IdentityDefault("all")] = Field(
        "all", description="captions per image that train in an epoch: all, or one drawn at random"
    )
    optimizer: Annotated[Literal["adam", "adamw", "ranger"], _KNOWS_DECAY] = Field(
        "adam",
        description="Adam; AdamW, which decouples weight decay from the gradient; or Ranger, RAdam with lookahead",
    )
    mean_loss: Annotated[StrictBool, IdentityDefault(False)] = Field(
        False, description="divide the loss, a sum over the pairs of a batch, by their number"
    )
    lr: PositiveFloat = Field(2e-4, description="learning rate before it decays")
    weight_decay: NonNegativeFloat = Field(0.0, description="strength of the weight decay; 0: none")
    undecayed: Annotated[Literal["none", "biases-and-norms"], IdentityDefault("none"), _DECAYS] = Field(
        "none", description="weights without weight decay; biases and norms are recognised by name, as in X-VLM"
    )
    beta2: Annotated[float, Field(gt=0, lt=1), IdentityDefault(0.999)] = Field(
        0.999, description="Adam's beta2: decay of the mean of squared gradients"
    )
    schedule: Annotated[Literal["steps", "linear"], IdentityDefault("steps")] = Field(
        "steps", description="steps: the learning rate falls by decay_factor; linear: it rises from 0, then falls to 0"
    )
    rise_share: Annotated[float, Field(ge=0, lt=1), IdentityDefault(0.1), _LINEAR] = Field(
        0.1, description="share of all training steps in which the learning rate rises"
    )
    decay_every: Annotated[PositiveInt, Unit("epochs"), _IN_STEPS] = Field(
        15, description="epochs between two steps of the learning rate"
    )
    decay_factor: Annotated[float, Field(gt=0, le=1), _IN_STEPS] = Field(
        0.1, description="factor on the learning rate at each step"
    )
    warmup_epochs: Annotated[NonNegativeInt, Unit("epochs"), IdentityDefault(0), _WARMS_UP] = Field(
        0,
        description="first epochs, on all negatives and all pairs alike; for objectives that mine or estimate",
    )
    text_lr_factor: Annotated[PositiveFloat, IdentityDefault(1.0), _TEXT_LEARNS] = Field(
        1.0, description="factor on lr for the text backbone"
    )
    image_lr_factor: Annotated[PositiveFloat, IdentityDefault(1.0), _IMAGE_LEARNS] = Field(
        1.0, description="factor on lr for the image backbone"
    )
    frozen_epochs: Annotated[NonNegativeInt, Unit("epochs"), IdentityDefault(0), _HELD] = Field(
        0, description="first epochs, in which the image backbone is frozen"
    )
    ramp_epochs: Annotated[NonNegativeInt, Unit("epochs"), IdentityDefault(0)] = Field(
        0, description="epochs after frozen_epochs in which the loss rises linearly from 0 to its full size"
    )
    drop_last: Annotated[StrictBool, IdentityDefault(False)] = Field(
        False, description="leave out the last batch of an epoch if it is smaller"
    )
    precision: Annotated[Literal["fp32", "bf16"], IdentityDefault("fp32")] = Field(
        "fp32", description="number format of the encoders' arithmetic; objectives always compute in fp32"
    )
    tf32: Annotated[StrictBool, IdentityDefault(False)] = Field(
        False, description="compute fp32 products on a GPU in TF32, with 10 bits of mantissa; off: as the papers did"
    )
    compile: Annotated[StrictBool, IdentityDefault(False)] = Field(
        False, description="run the encoders through torch.compile: faster on a GPU; other rounding and other dropout"
    )
    micro_batch: Annotated[PositiveInt | None, Unit("pairs"), NoIdentity] = Field(
        default=None,
        description="embed a batch N pairs at a time, twice, to save memory: the gradient equals the whole batch's to "
        "rounding, dropout is drawn part by part; none: the whole batch at once",
    )
    checkpoint_activations: Annotated[StrictBool, NoIdentity] = Field(
        False,
        description="save memory: keep only the input of each block of transformers and ResNets, recompute the rest",
    )
    clip_norm: PositiveFloat = Field(2.0, description="gradient clipping: bound on the norm of the whole gradient")
    ranker: Annotated[Name | None, IdentityDefault(None), _OFFLINE] = Field(
        default=None,
        description="recipe whose trial on the same data and seed ranks the training split for offline negatives",
    )
    ranker_objective: Annotated[Name, IdentityDefault("triplet-hn"), _RANKED] = Field(
        "triplet-hn", description="objective of the ranker's trial"
    )
    starts_from: Annotated[str | None, IdentityDefault(None), AfterValidator(_checkpoint)] = Field(
        default=None,
        description="published checkpoint to fine-tune, file:PATH in a grid file; stored as the hash of its content",
    )
    selection: Literal["best-val-rsum", "last"] = Field(
        "best-val-rsum", description="epoch whose weights are kept and tested"
    )
    trace_every: Annotated[PositiveInt | None, Unit("steps"), NoIdentity] = Field(
        default=None, description="store all values of every N-th step next to the record; none: only means over epochs"
    )

    @property
    def computes_again(self) -> bool:
        """Whether the backward pass computes again what the forward pass gave, for less memory."""
        return self.checkpoint_activations or self.micro_batch is not None

    def selection_rank(self, row: Mapping[str, Any]) -> float:
        """Return the value of an epoch's row by which `selection` picks the first of the highest."""
        rank: float = row["epoch"] if self.selection == "last" else row["val_rsum"]
        return rank


class ObjectiveSettings(Settings):
    """An objective with all its parameters, defaults filled in."""

    name: str
    variant: Literal["paper", "released"] = Field(
        default="paper", description="equations of the papers, or of the code that they released"
    )
    parameters: dict[str, int | float | bool | str | None] = {}
    _own: ObjectiveEntry | None = PrivateAttr(default=None)

    def model_post_init(self, context: Any) -> None:
        super().model_post_init(context)
        self._own = registered(context, "objective").get(self.name)

    @property
    def entry(self) -> ObjectiveEntry:
        """What the name meant when the settings were validated; UserError: nobody knows it."""
        if entry := self._own or OURS.get(self.name):
            return entry
        raise UserError(unknown_objective(self.name))

    @property
    def needs(self) -> tuple[str, ...]:
        """What training adds for the objective; nothing for an unknown name."""
        entry = self._own or OURS.get(self.name)
        return entry.needs if entry else ()

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns of the data that the objective reads."""
        entry = self._own or OURS.get(self.name)
        return entry.columns if entry else ()


class DataKey(NamedTuple):
    """Key of what a training reads of a data set, which distinguishes its content from other data."""

    name: str
    features: bool
    """Whether features that a user computed replace the images."""
    vocabulary: str | None
    columns: tuple[str, ...] = ()
    """That the objective reads."""

    @classmethod
    def of(cls, dataset: DatasetSettings, model: ModelSettings, columns: tuple[str, ...] = ()) -> "DataKey":
        return cls(dataset.name, model.image.view is None, dataset.vocabulary, columns)


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
    ranker: Annotated[str | None, IdentityDefault(None)] = Field(
        default=None, description="id of the trial whose model ranked the training split for this one's negatives"
    )
    ensemble: Annotated[tuple[str, ...], IdentityDefault(())] = Field(
        default=(), description="ids of the trials whose scores this one averages; it trains nothing"
    )

    @property
    def parents(self) -> tuple[str, ...]:
        """Ids of the trials that come first: its members, or the trial that it starts from, and its ranker."""
        return self.ensemble or tuple(name for name in (self.starts_from, self.ranker) if name)
