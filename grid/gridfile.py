"""Grid files: TOML files that are checked completely before anything runs.

A grid is read in three stages: the `Text` of a file, its normalised `GridDocument`, and the validated `Grid`.
"""

import math
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Annotated, Any

import tomli_w
from pydantic import AfterValidator, Field, PlainValidator, PrivateAttr, ValidationError

from goalgrid.grid import catalog
from goalgrid.grid.catalog import Catalog
from goalgrid.grid.columns import Columns, Role, columns_of
from goalgrid.grid.cross_checks import mistakes, wrong_settings
from goalgrid.grid.document import GridDocument, content_of, read_text
from goalgrid.grid.errors import machine_path, several, unknown
from goalgrid.grid.evaluations import Evaluate
from goalgrid.grid.fair import Fair
from goalgrid.grid.notes import Notes
from goalgrid.grid.overrides import CHANGES, changed
from goalgrid.grid.plugins import Use
from goalgrid.grid.resources import UNTIL_RESOLVED, Budget, Reliability, Resources
from goalgrid.grid.select import Select
from goalgrid.grid.settings.base import Name, Settings, check_name
from goalgrid.grid.syntax import Scalar
from goalgrid.grid.validation_messages import explain

TRACKERS = ("mlflow", "tensorboard", "wandb")


def _scalar(value: Any) -> Scalar:
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError("it should be finite")
    if not isinstance(value, Scalar):
        raise ValueError("it should be a number, a text, true or false; put values to sweep in [sweep]")
    return value


def _some(patterns: dict[str, Any]) -> dict[str, Any]:
    if not patterns:
        raise ValueError("it names no cells, as recipe = 'scan*' does")
    return patterns


def _grid_name(text: str) -> str:
    plain, separator, changes = text.partition("@")
    if separator and not re.fullmatch(CHANGES, changes):
        raise ValueError(f"the part after the @ must be changes, {CHANGES}")
    return check_name(plain) + separator + changes


def _tracker(name: str) -> str:
    if name not in TRACKERS:
        raise ValueError(unknown("tracker", name, TRACKERS))
    return name


Value = Annotated[Scalar, PlainValidator(_scalar)]
Patterns = Annotated[dict[str, Value | Annotated[list[Value], Field(min_length=1)]], AfterValidator(_some)]
"""A selection of cells by values or patterns of their axes; in a list, any entry may match."""


class Location(Settings):
    """The location of a data set on this machine; it does not change trial ids."""

    root: str = Field(
        description="folder of the data set on this machine; relative paths start at the grid file's folder"
    )
    columns: dict[Role, str | Annotated[list[str], Field(min_length=1)]] | None = Field(
        default=None, description="columns of a table of captions, by role; default: recognise them by name"
    )


class Where(Settings):
    """Overrides for the cells that match all values or patterns in `cells`."""

    cells: Patterns
    set: Annotated[dict[str, Value], Field(min_length=1)]


class Grid(Settings):
    """The validated content of a grid file: axes, overrides, data locations, resources and evaluations."""

    name: Annotated[str, AfterValidator(_grid_name)]
    """Name of the grid; command-line overrides are appended after an @: `demo@train.epochs=1`."""
    datasets: Annotated[list[Name], Field(min_length=1)]
    recipes: Annotated[list[str], Field(min_length=1)]
    objectives: Annotated[list[str], Field(min_length=1)]
    seeds: Annotated[list[Annotated[int, Field(ge=0, lt=2**63)]], Field(min_length=1)]
    set: dict[str, Value] = {}
    sweep: dict[str, Annotated[list[Value], Field(min_length=1)]] = {}
    select: Select | None = None
    """Settings that each cell chooses by validation; `seeds` are the seeds of the final trials."""
    where: list[Where] = []
    """Overrides for some cells; a grid file may give the axes next to `set`."""
    exclude: list[Patterns] = []
    """Cells to exclude: those that match all values or patterns of any entry."""
    idle: list[str] = []
    """Those of `where` and `exclude` whose entries may match no cell because the command line changed the axes."""
    data: dict[Name, Location] = {}
    weights: dict[str, str] = {}
    checkpoints: dict[str, str] = {}
    """Paths of published checkpoints on this machine, by the hash in `train.starts_from`."""
    recipe: dict[Name, dict[str, Any]] = {}
    """The user's own recipes, merged with the recipes that they extend."""
    uses: list[Use] = []
    """The user's files and packages that define further components; a grid file gives their paths and names."""
    tables: list[str] = []
    """Tables of the papers to reproduce; `plan` shows which of their numbers the grid covers."""
    trackers: list[Annotated[str, AfterValidator(_tracker)]] = ["mlflow"]
    """Experiment trackers to which the driver logs all trials; may be empty."""
    resources: Resources = Resources()
    reliability: Reliability = Reliability()
    budget: Budget | None = None
    """Only for seeds = "until resolved"; `seeds` are then all seeds that the budget allows."""
    evaluate: Evaluate = Evaluate()
    fair: Fair = Fair()
    notes: Notes = Notes()
    _catalog: Catalog = PrivateAttr()

    def model_post_init(self, context: Any) -> None:
        super().model_post_init(context)
        self._catalog = context["catalog"] if context else Catalog.of(self.uses).with_recipes(self.recipe)

    @property
    def catalog(self) -> Catalog:
        """The catalogue in which the grid's names are looked up."""
        return self._catalog

    @property
    def plain_name(self) -> str:
        return self.name.partition("@")[0]

    @property
    def search_seeds(self) -> frozenset[int]:
        """The seeds used in searches, which no trial of a table has; empty without [select]."""
        return self.select.seeds if self.select else frozenset()

    @property
    def letters_faults(self) -> bool:
        """Whether paper tables mark unfair cells by letters: if the grid has [select] or required rules."""
        return self.select is not None or bool(self.fair.require)

    @property
    def settings(self) -> frozenset[str]:
        """Names of all settings in [set], [sweep], [select] and [[where]]."""
        chosen = self.select.over if self.select else ()
        return frozenset(self.set).union(self.sweep, chosen, *(entry.set for entry in self.where))

    def axes(self) -> dict[str, Sequence[Scalar]]:
        """Return the values of each axis by name, with swept settings last."""
        names: dict[str, Sequence[Scalar]] = {"data set": self.datasets, "recipe": self.recipes}
        return {**names, "objective": self.objectives, "seed": self.seeds, **self.sweep}

    def to_toml(self) -> str:
        """Return the grid as TOML that loads to an equal grid."""
        content = self.model_dump(mode="json", exclude_none=True)
        content["where"] = [{**entry["cells"], "set": entry["set"]} for entry in content["where"]]
        return tomli_w.dumps(content | ({"seeds": UNTIL_RESOLVED} if self.budget else {}), multiline_strings=True)

    def places(self) -> dict[str, Path]:
        """Return the folders of pretrained weights on this machine, by the name of the weights."""
        return {name: machine_path(folder) for name, folder in self.weights.items()}

    def root(self, dataset: str) -> Path | None:
        """Return the folder of this data set; None if the grid does not give it."""
        return machine_path(self.data[dataset].root) if dataset in self.data else None

    def columns(self, dataset: str) -> Columns:
        """Return the columns that the grid gives for this data set's tables."""
        return columns_of(self.data[dataset].columns) if dataset in self.data else ()


def load(source: str, overrides: Sequence[str] = (), *, roots: Iterable[str] = (), weights: Iterable[str] = ()) -> Grid:
    """Read a shipped preset by name or a TOML file by path, apply command-line overrides, and check everything.

    Args:
        source: a preset's name, or the path of a grid file.
        overrides: KEY=VALUE, the value in TOML; KEY is a field of the grid file or a setting's dotted name.
        roots: DATASET=DIR, or DIR alone for a grid with one data set.
        weights: NAME=DIR, the folder of pretrained weights.

    Raises:
        UserError: something is wrong; the error lists all problems.
    """
    content = content_of(read_text(source))
    grid = check(changed(content, overrides, roots=roots, weights=weights))
    for name, place in grid.data.items():  # not in `check`: what an older version saved is still shown
        catalog.has_folder(name, f"{content.where}: data.{name}.root = {place.root!r}")
    return grid


def check(content: GridDocument) -> Grid:
    """Validate a grid's content; raise one UserError that lists all problems."""
    problems = mistakes(content)
    fields = content.fields | _within_budget(content)
    problems += _wrong_seeds(content, content.put(**fields).values("seeds"))
    try:
        grid = content.catalog.validated(Grid, fields)
    except ValidationError as error:
        problems = explain(error, Grid) + problems
    if problems:
        raise several(content.where, [*problems, *wrong_settings(content, problems)])
    return grid


def _wrong_seeds(content: GridDocument, seeds: Sequence[Any]) -> list[str]:
    """Report seeds that are also used by searches, and a wrong number of searches."""
    if "select" not in content.fields:
        return []
    try:
        select = Select.model_validate(content.table("select"))
    except ValidationError:  # which is a problem itself
        return []
    names = {select.seed: f"select.seed = {select.seed}"}
    problems = [
        f"{names.get(seed, f'{seed}, a seed of the search by [select],')} is also in seeds; a cell must be tested on "
        "seeds that did not choose for it"
        for seed in seeds
        if seed in select.seeds
    ]
    if select.repeats > 1 and content.values("seeds") == [UNTIL_RESOLVED]:
        problems.append("select.repeats: each seed has its own search, so seeds cannot be added until resolved")
    elif select.repeats not in (1, len(seeds)):
        problems.append(
            f"select.repeats = {select.repeats}: each seed is trained with the values of its own search, so "
            f"repeats should be 1, or {len(seeds)} (the number of seeds)"
        )
    return problems


def _within_budget(content: GridDocument) -> dict[str, Any]:
    """The budget and all allowed seeds of a grid with seeds = "until resolved"; empty for any other grid."""
    if content.values("seeds") != [UNTIL_RESOLVED]:
        return {}
    budget = content.table("budget")
    most = budget.get("seeds", Budget.model_fields["seeds"].default)
    return {"budget": budget, "seeds": list(range(most)) if isinstance(most, int) and most > 0 else [0]}
