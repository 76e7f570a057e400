"""What is shipped: recipes, presets and data sets, one TOML file each. The folder is the list."""

import tomllib
from importlib import resources
from typing import Annotated, Any, Literal

from pydantic import Field, ValidationError

from grid.errors import UserError, unknown
from grid.settings import ModelSettings, Settings, TrainSettings

Shelf = Literal["recipes", "presets", "datasets"]


class Resources(Settings):
    """What a job asks of the machine: never part of a trial's identity."""

    cpu: Annotated[int, Field(ge=1)] = 1
    gpu: Annotated[float, Field(ge=0)] | None = None
    """Share of one GPU, or a whole number of them; None: the recipe's share where there is a GPU, else none."""
    concurrency: Annotated[int, Field(ge=1)] | None = None
    """Jobs at a time; None: as many as the CPUs and GPUs hold."""
    workers: Annotated[int, Field(ge=1)] = 2
    """Threads that decode raw images, per trial."""


class Recipe(Settings):
    """A backbone with its training settings, and the share of a GPU that it needs."""

    description: str
    gpu: float = 1.0
    model: ModelSettings
    train: TrainSettings


class Dataset(Settings):
    """A data set by name: its protocol and where users find it."""

    description: str
    protocol: str
    test_splits: list[str] = ["test"]
    """Names of the test split on disk, the first that exists counts."""
    embedded: bool = False
    """Whether it is generated, so that no root is needed."""
    where: str = ""


def names(shelf: Shelf) -> list[str]:
    """What this shelf holds, by name."""
    folder = resources.files("grid").joinpath(shelf)
    return sorted(item.name.removesuffix(".toml") for item in folder.iterdir() if item.name.endswith(".toml"))


def read(shelf: Shelf, name: str) -> dict[str, Any]:
    """The content of one shipped file.

    Raises:
        UserError: there is none of that name.
    """
    if name not in names(shelf):
        raise UserError(unknown(shelf.removesuffix("s"), name, names(shelf)))
    return tomllib.loads(resources.files("grid").joinpath(shelf, f"{name}.toml").read_text(encoding="utf-8"))


def recipe(name: str) -> Recipe:
    """A shipped recipe."""
    return Recipe.model_validate(read("recipes", name))


def dataset(name: str) -> Dataset:
    """A shipped data set."""
    return Dataset.model_validate(read("datasets", name))


def explain(error: ValidationError, prefix: str = "") -> list[str]:
    """Every problem pydantic found, one line each: where, what, and the wrong value."""
    lines = []
    for problem in error.errors():
        place = ".".join(str(part) for part in problem["loc"])
        value = "" if problem["type"] == "missing" else f" (got {problem['input']!r})"
        lines.append(f"{prefix}{place}: {problem['msg']}{value}" if place else f"{prefix}{problem['msg']}{value}")
    return lines
