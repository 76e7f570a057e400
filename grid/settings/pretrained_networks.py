"""Settings of pretrained networks, whose weights come from a model hub or from a file of their authors."""

from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import Field, model_validator

from goalgrid.grid.settings.base import CALL, Settings, told_once

RANDOM = "random"
"""The value of `weights` without pretraining: the network is randomly initialised from a fixed seed."""

WeightsName = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*(/[A-Za-z0-9._-]+)?$")]
"""A name on a model hub, e.g. `google-bert/bert-base-uncased`; the folder on this machine is not a setting."""


Call = Literal["plain", "published"]
PUBLISHED: Literal["published"] = "published"
"""The value of a field that is read from the folder of the weights."""


LAST = "last "
"""Prefix of `trains` if the last blocks are trained."""
Trains = Annotated[
    Annotated[str, Field(pattern=r"^(projection|last [1-9][0-9]*)$")] | None,
    told_once("none, projection, last K (e.g. 'last 2'), or all"),
]
TRAINS = (
    "trainable part of the network. none: nothing, and its features are cached; projection: only its final projection "
    "into the shared space; last K: its last K blocks and all later layers (open_clip also counts the projection as a "
    "block); all. none and all equal frozen = true and frozen = false, with the same trial ids"
)


class Pretrained(Settings):
    """A `transformers` network: pretrained weights by name, or an architecture with random weights."""

    of_file: ClassVar[bool] = False
    """Whether the weights come from a file of their authors instead of a model hub."""
    weights: WeightsName = Field(
        description="name on the model hub, or random; --weights NAME=DIR gives its folder on this machine"
    )
    architecture: dict[str, int | float | bool | str | list[int] | list[str]] = Field(
        {}, description="architecture of a network with random weights: model_type and its sizes; only in recipes"
    )

    @property
    def built_here(self) -> bool:
        """Whether goalgrid builds the network without `transformers`: a randomly initialised ResNet of basic layers."""
        sizes = {"embedding_size", "hidden_sizes", "depths"}
        kind = {"model_type": "resnet", "layer_type": "basic"}
        return kind.items() <= self.architecture.items() and self.architecture.keys() == kind.keys() | sizes

    @classmethod
    def _with_call(cls, content: Any, **published: Any) -> Any:
        """The content with these defaults added if it asks for the published call."""
        asked = isinstance(content, dict) and content.get(CALL) == PUBLISHED
        return {**published, **content} if asked else content

    @staticmethod
    def _with_learning(content: Any) -> Any:
        """The content with `trains` = none or all as `frozen`; raises a ValueError if the two contradict each other."""
        trains = content.get("trains") if isinstance(content, dict) else None
        if trains is None:
            return content
        frozen = trains == "none"
        if content.get("frozen", frozen) != frozen:
            raise ValueError(f"trains = {trains!r} contradicts frozen = {str(not frozen).lower()}; give one of the two")
        partial = {} if trains in ("none", "all") else {"trains": trains}
        return {name: value for name, value in content.items() if name != "trains"} | {"frozen": frozen} | partial

    def _check_parts(self) -> None:
        """Raise a ValueError if `trains` or `call` needs something that the weights lack."""
        if getattr(self, "trains", None) == "projection" and getattr(self, "output", "") != "projected":
            raise ValueError('trains = "projection" needs output = "projected", the vector that this layer gives')
        if self.weights == RANDOM and getattr(self, CALL) == PUBLISHED:
            raise ValueError(
                f'call = "{PUBLISHED}" is read from the folder of the weights, and random weights have none'
            )

    @model_validator(mode="after")
    def _one_source(self) -> Self:
        if self.weights == RANDOM and "model_type" not in self.architecture:
            raise ValueError(f'weights = "{RANDOM}" needs an architecture with a model_type')
        if self.weights != RANDOM and self.architecture:
            raise ValueError(f"weights {self.weights!r} come with an architecture; give only one of the two")
        return self


class PretrainedFile(Pretrained):
    """Weights of a whole model in a file of its authors, referred to by name."""

    of_file: ClassVar[bool] = True
    family: str
    """Name of the checkpoint's family in the maps of published weights."""
