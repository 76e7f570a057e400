"""The settings of one trial that determine its result, and no others.

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
"""Name of the component needed by objectives that mine negatives from a ranking of the training split."""


class Reader(NamedTuple):
    """The model and objective that decide which data and training settings have an effect.

    Fields: the model, whether its objective supports warm-up, and the components that the objective needs.
    """

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
    """The data set, its evaluation protocol, and how its captions are tokenized."""

    name: Name = Field(description="name of the data set, as listed in `datasets`")
    protocol: str = Field(description="evaluation protocol, printed under tables, e.g. flickr8k-1k")
    min_count: Annotated[PositiveInt, Unit("uses"), _WORDS, _OWN] = Field(
        4, description="minimum count of a word in the training captions for it to enter the vocabulary"
    )
    max_words: Annotated[PositiveInt, Unit("words or word pieces")] = Field(
        60, description="length at which captions are truncated"
    )
    words: Annotated[Literal["plain", "nltk"], IdentityDefault("plain"), _WORDS] = Field(
        "plain",
        description="tokenizer. plain: words and numbers; nltk: NLTK's word tokenizer, which keeps punctuation, as "
        "in published code",
    )
    vocabulary: Annotated[str | None, IdentityDefault(None), _WORDS] = Field(
        default=None,
        pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*(/[A-Za-z0-9][A-Za-z0-9._-]*)*$",
        description="vocabulary file of published code (.pkl or .json), as a path within the data set's folder; none: "
        "build the vocabulary from the training captions",
    )
    train_images: Annotated[PositiveInt | None, Unit("images"), IdentityDefault(None)] = Field(
        default=None,
        description="train on the first N images, with the vocabulary of their captions; none: use all images",
    )
    val_images: Annotated[PositiveInt | None, Unit("images"), IdentityDefault(None)] = Field(
        default=None, description="validate on the first N images; none: use all images; the papers' code uses 1,000"
    )
    noise: Annotated[float, Field(ge=0, lt=1), IdentityDefault(0.0)] = Field(
        0.0,
        description="fraction of the training captions whose images are shuffled among them, as in NCR's noisy pairs",
    )
    noise_seed: Annotated[NonNegativeInt, IdentityDefault(0), _NOISY] = Field(
        0, description="seed of the shuffle of dataset.noise; all seeds of a grid share it"
    )
    cache: Annotated[Literal["shrunk"] | None, IdentityDefault(None), _PICTURES] = Field(
        default=None,
        description="shrunk: decode pictures once for all trials, and cache them with a shorter side of 1.15 times "
        "the view's; this changes pixels, hence trial ids; none: decode the files each time they are read",
    )
    candidates: Annotated[str | None, IdentityDefault(None), _OFFLINE] = Field(
        default=None,
        pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*(/[A-Za-z0-9][A-Za-z0-9._-]*)*$",
        description="folder with AOQ's i2t*.npy and t2i*.npy, within the data set's folder; none: use the ranking of "
        "train.ranker",
    )


def _checkpoint(name: str | None) -> str | None:
    if name is not None and not re.fullmatch(r"sha256:[0-9a-f]{64}", name):
        raise ValueError(
            "it should be file:PATH, where PATH is a published checkpoint, in [set] or [sweep] of a grid file"
        )
    return name


class TrainSettings(Settings):
    """Settings of the training loop, which all recipes share."""

    epochs: Annotated[NonNegativeInt, Unit("epochs")] = Field(
        description="passes over the training captions; 0: evaluate the initial model without training"
    )
    batch_size: Annotated[int, Field(ge=2), Unit("pairs")] = Field(
        128, description="image-caption pairs per batch; at least 2, since a single pair has no negatives"
    )
    captions: Annotated[Literal["all", "one"], IdentityDefault("all")] = Field(
        "all", description="captions per image used in each epoch: all, or one drawn at random"
    )
    optimizer: Annotated[Literal["adam", "adamw", "ranger"], _KNOWS_DECAY] = Field(
        "adam",
        description="adam; adamw: Adam with decoupled weight decay; ranger: RAdam with lookahead",
    )
    mean_loss: Annotated[StrictBool, IdentityDefault(False)] = Field(
        False, description="average the loss over the pairs of a batch instead of summing it"
    )
    lr: PositiveFloat = Field(2e-4, description="learning rate before it decays")
    weight_decay: NonNegativeFloat = Field(0.0, description="weight decay coefficient; 0: no weight decay")
    undecayed: Annotated[Literal["none", "biases-and-norms"], IdentityDefault("none"), _DECAYS] = Field(
        "none", description="parameters exempt from weight decay; biases and norms are recognised by name, as in X-VLM"
    )
    beta2: Annotated[float, Field(gt=0, lt=1), IdentityDefault(0.999)] = Field(
        0.999, description="Adam's beta2: decay rate of the running mean of squared gradients"
    )
    schedule: Annotated[Literal["steps", "linear"], IdentityDefault("steps")] = Field(
        "steps",
        description="learning-rate schedule. steps: step decay by decay_factor; linear: linear "
        "warm-up, then linear decay to 0",
    )
    rise_share: Annotated[float, Field(ge=0, lt=1), IdentityDefault(0.1), _LINEAR] = Field(
        0.1, description="fraction of all training steps spent on the learning rate's linear warm-up"
    )
    decay_every: Annotated[PositiveInt, Unit("epochs"), _IN_STEPS] = Field(
        15, description="epochs between decays of the learning rate"
    )
    decay_factor: Annotated[float, Field(gt=0, le=1), _IN_STEPS] = Field(
        0.1, description="factor applied to the learning rate at each decay"
    )
    warmup_epochs: Annotated[NonNegativeInt, Unit("epochs"), IdentityDefault(0), _WARMS_UP] = Field(
        0,
        description="number of initial epochs that use all negatives and weight all pairs equally; only for "
        "objectives that mine negatives or estimate which pairs match",
    )
    text_lr_factor: Annotated[PositiveFloat, IdentityDefault(1.0), _TEXT_LEARNS] = Field(
        1.0, description="factor applied to lr for the text backbone"
    )
    image_lr_factor: Annotated[PositiveFloat, IdentityDefault(1.0), _IMAGE_LEARNS] = Field(
        1.0, description="factor applied to lr for the image backbone"
    )
    frozen_epochs: Annotated[NonNegativeInt, Unit("epochs"), IdentityDefault(0), _HELD] = Field(
        0, description="number of initial epochs during which the image backbone is frozen"
    )
    ramp_epochs: Annotated[NonNegativeInt, Unit("epochs"), IdentityDefault(0)] = Field(
        0, description="number of epochs after frozen_epochs over which the loss weight ramps linearly from 0 to 1"
    )
    drop_last: Annotated[StrictBool, IdentityDefault(False)] = Field(
        False, description="drop the last batch of an epoch if it is incomplete"
    )
    precision: Annotated[Literal["fp32", "bf16"], IdentityDefault("fp32")] = Field(
        "fp32", description="precision of the encoders' computations; objectives always compute in fp32"
    )
    tf32: Annotated[StrictBool, IdentityDefault(False)] = Field(
        False,
        description="use TF32 (10-bit mantissa) for fp32 matrix products on a GPU; off: full fp32, as in the papers",
    )
    compile: Annotated[StrictBool, IdentityDefault(False)] = Field(
        False,
        description="run the encoders through torch.compile: faster on a GPU, but rounding and dropout masks differ",
    )
    micro_batch: Annotated[PositiveInt | None, Unit("pairs"), NoIdentity] = Field(
        default=None,
        description="embed each batch in two passes of N pairs at a time, to save memory: the gradient equals the full "
        "batch's up to rounding, and dropout is drawn per part; none: embed the whole batch at once",
    )
    checkpoint_activations: Annotated[StrictBool, NoIdentity] = Field(
        False,
        description="gradient checkpointing: store only the input of each transformer or ResNet block and recompute "
        "the rest, to save memory",
    )
    clip_norm: PositiveFloat = Field(
        2.0, description="gradient clipping: maximum norm of the gradient over all parameters"
    )
    ranker: Annotated[Name | None, IdentityDefault(None), _OFFLINE] = Field(
        default=None,
        description="recipe whose trial (same data, same seed) ranks the training split, from which offline "
        "negatives are taken",
    )
    ranker_objective: Annotated[Name, IdentityDefault("triplet-hn"), _RANKED] = Field(
        "triplet-hn", description="objective of the ranker's trial"
    )
    starts_from: Annotated[str | None, IdentityDefault(None), AfterValidator(_checkpoint)] = Field(
        default=None,
        description="published checkpoint to fine-tune, given as file:PATH in a grid file and stored as the SHA-256 "
        "of the file",
    )
    selection: Literal["best-val-rsum", "last"] = Field(
        "best-val-rsum", description="epoch whose weights are kept and tested: the best validation rsum, or the last"
    )
    trace_every: Annotated[PositiveInt | None, Unit("steps"), NoIdentity] = Field(
        default=None,
        description="store all logged values of every N-th step next to the record; none: store only epoch means",
    )

    @property
    def computes_again(self) -> bool:
        """Whether the backward pass recomputes parts of the forward pass, to save memory."""
        return self.checkpoint_activations or self.micro_batch is not None

    def selection_rank(self, row: Mapping[str, Any]) -> float:
        """Return the value by which `selection` ranks an epoch; the first epoch with the highest value is selected."""
        rank: float = row["epoch"] if self.selection == "last" else row["val_rsum"]
        return rank


class ObjectiveSettings(Settings):
    """An objective with all its parameters, including those left at their defaults."""

    name: str
    variant: Literal["paper", "released"] = Field(
        default="paper", description="paper: the equations of the paper; released: those of its released code"
    )
    parameters: dict[str, int | float | bool | str | None] = {}
    _own: ObjectiveEntry | None = PrivateAttr(default=None)

    def model_post_init(self, context: Any) -> None:
        super().model_post_init(context)
        self._own = registered(context, "objective").get(self.name)

    @property
    def entry(self) -> ObjectiveEntry:
        """The objective that the name referred to when the settings were validated.

        Raises a UserError if there is no such objective.
        """
        if entry := self._own or OURS.get(self.name):
            return entry
        raise UserError(unknown_objective(self.name))

    @property
    def needs(self) -> tuple[str, ...]:
        """The components that training adds for the objective; empty for an unknown name."""
        entry = self._own or OURS.get(self.name)
        return entry.needs if entry else ()

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns of the user's data table that the objective reads."""
        entry = self._own or OURS.get(self.name)
        return entry.columns if entry else ()


class DataKey(NamedTuple):
    """The parts of a data set that a trial reads; trials with equal keys share one content hash."""

    name: str
    features: bool
    """Whether precomputed features of the user replace the images."""
    vocabulary: str | None
    columns: tuple[str, ...] = ()
    """Columns that the objective reads."""

    @classmethod
    def of(cls, dataset: DatasetSettings, model: ModelSettings, columns: tuple[str, ...] = ()) -> "DataKey":
        return cls(dataset.name, model.image.view is None, dataset.vocabulary, columns)


class TrialSettings(Settings):
    """All settings of one trial: a cell of the grid and a seed. Each trial has one training and one record."""

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
        default=None,
        description="id of the trial whose model ranked the training split, from which this trial takes its negatives",
    )
    ensemble: Annotated[tuple[str, ...], IdentityDefault(())] = Field(
        default=(), description="ids of the trials whose scores this trial averages; an ensemble trains nothing"
    )

    @property
    def parents(self) -> tuple[str, ...]:
        """Ids of the trials that must finish first: all members of an ensemble, or the start trial and the ranker."""
        return self.ensemble or tuple(name for name in (self.starts_from, self.ranker) if name)
