"""Settings of networks whose weights come from elsewhere: by name, or from a file of their authors'."""

from typing import Annotated, ClassVar, Self

from pydantic import Field, model_validator

from goalgrid.grid.settings.base import Settings

RANDOM = "random"
"""The name of no weights: a network built from its architecture and started from a fixed seed."""

WeightsName = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*(/[A-Za-z0-9._-]+)?$")]
"""A name as model hubs give it, `google-bert/bert-base-uncased`. The folder on this machine is no setting."""


class Pretrained(Settings):
    """A `transformers` network: weights by name, or an architecture with random ones."""

    of_file: ClassVar[bool] = False
    """Whether the weights are a file of their authors', which no hub has."""
    weights: WeightsName = Field(
        description="name on the model hub, or random; --weights says where it lies on this machine"
    )
    architecture: dict[str, int | float | bool | str | list[int] | list[str]] = Field(
        {}, description="a network without pretrained weights: model_type and its sizes; in a recipe only"
    )

    @property
    def built_here(self) -> bool:
        """Whether goalgrid itself builds the network, without `transformers`: a random ResNet of basic layers."""
        sizes = {"embedding_size", "hidden_sizes", "depths"}
        kind = {"model_type": "resnet", "layer_type": "basic"}
        return kind.items() <= self.architecture.items() and self.architecture.keys() == kind.keys() | sizes

    @model_validator(mode="after")
    def _one_source(self) -> Self:
        if self.weights == RANDOM and "model_type" not in self.architecture:
            raise ValueError(f'weights = "{RANDOM}" needs an architecture with a model_type')
        if self.weights != RANDOM and self.architecture:
            raise ValueError(f"the architecture comes with weights {self.weights!r}; give one of the two")
        return self


class PretrainedFile(Pretrained):
    """Weights of a whole model in a file of its authors', by name."""

    of_file: ClassVar[bool] = True
    family: str
    """As maps of published weights name it."""
