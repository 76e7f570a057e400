"""Grid files: a dozen lines of TOML, checked as a whole before anything runs.

A grid is read in stages, each with a type: the `Text` of a file, its `GridDocument` in one form, the `Grid`.
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
        raise ValueError("it should be a number, a text, true or false; values to sweep stand in [sweep]")
    return value


def _some(patterns: dict[str, Any]) -> dict[str, Any]:
    if not patterns:
        raise ValueError("it names no cells, as recipe = 'scan*' does")
    return patterns


def _grid_name(text: str) -> str:
    plain, separator, changes = text.partition("@")
    if separator and not re.fullmatch(CHANGES, changes):
        raise ValueError(f"behind the @ stand changes, {CHANGES}")
    return check_name(plain) + separator + changes


def _tracker(name: str) -> str:
    if name not in TRACKERS:
        raise ValueError(unknown("tracker", name, TRACKERS))
    return name


Value = Annotated[Scalar, PlainValidator(_scalar)]
Patterns = Annotated[dict[str, Value | Annotated[list[Value], Field(min_length=1)]], AfterValidator(_some)]
"""Cells by values or patterns of their axes; of a list, one is to fit."""


class Location(Settings):
    """The place of a data set on this machine: never part of a trial's identity."""

    root: str = Field(description="folder of the data set on this machine; a relative path begins at the file's folder")
    columns: dict[Role, str | Annotated[list[str], Field(min_length=1)]] | None = Field(
        default=None, description="columns of a table of captions by role; without it, their names tell"
    )


class Where(Settings):
    """Overrides for some cells: `cells` names them by values or patterns of their axes, and all have to fit."""

    cells: Patterns
    set: Annotated[dict[str, Value], Field(min_length=1)]


class Grid(Settings):
    """A grid file's content: axes, overrides, and where and with what to run."""

    name: Annotated[str, AfterValidator(_grid_name)]
    """With overrides behind an @: `demo@train.epochs=1`."""
    datasets: Annotated[list[Name], Field(min_length=1)]
    recipes: Annotated[list[str], Field(min_length=1)]
    objectives: Annotated[list[str], Field(min_length=1)]
    seeds: Annotated[list[Annotated[int, Field(ge=0, lt=2**63)]], Field(min_length=1)]
    set: dict[str, Value] = {}
    sweep: dict[str, Annotated[list[Value], Field(min_length=1)]] = {}
    select: Select | None = None
    """Settings that each cell chooses by validation; `seeds` are those of the trials with the chosen values."""
    where: list[Where] = []
    """Overrides for some cells; in a grid file, the axes stand beside `set`."""
    exclude: list[Patterns] = []
    """Cells to leave out: an entry names a value or a pattern of one axis or several, and all have to fit."""
    idle: list[str] = []
    """The fields, of `where` and `exclude`, whose entries may fit no cell, since the command line changed the axes."""
    data: dict[Name, Location] = {}
    weights: dict[str, str] = {}
    checkpoints: dict[str, str] = {}
    """The files of published checkpoints on this machine, by the hash that `train.starts_from` has."""
    recipe: dict[Name, dict[str, Any]] = {}
    """The user's own recipes, whole; in a grid file, a table may extend another recipe."""
    uses: list[Use] = []
    """The user's own files and packages, which define objectives beside ours; in a grid file, their paths and names."""
    tables: list[str] = []
    """Tables of the papers; `plan` says which of their numbers the grid fills. `results` knows their names."""
    trackers: list[Annotated[str, AfterValidator(_tracker)]] = ["mlflow"]
    """Programs that show trainings; the driver copies all trials into each of them. An empty list: none."""
    resources: Resources = Resources()
    reliability: Reliability = Reliability()
    budget: Budget | None = None
    """Of a grid with seeds = "until resolved": `seeds` are all that it may spend."""
    evaluate: Evaluate = Evaluate()
    fair: Fair = Fair()
    notes: Notes = Notes()
    _catalog: Catalog = PrivateAttr()

    def model_post_init(self, context: Any) -> None:
        super().model_post_init(context)
        self._catalog = context["catalog"] if context else Catalog.of(self.uses).with_recipes(self.recipe)

    @property
    def catalog(self) -> Catalog:
        """What the names in the grid mean: shipped, of its plug-ins, and its own recipes."""
        return self._catalog

    @property
    def plain_name(self) -> str:
        return self.name.partition("@")[0]

    @property
    def search_seeds(self) -> frozenset[int]:
        """The seeds of search trials, which no trial of a table has; empty: validation chooses nothing."""
        return self.select.seeds if self.select else frozenset()

    @property
    def letters_faults(self) -> bool:
        """Whether a paper's table says by letters what is unfair: where validation chooses, or the grid asks for it."""
        return self.select is not None or bool(self.fair.require)

    @property
    def settings(self) -> frozenset[str]:
        """Names of the settings that the grid sets, sweeps or chooses, for all cells or for some."""
        chosen = self.select.over if self.select else ()
        return frozenset(self.set).union(self.sweep, chosen, *(entry.set for entry in self.where))

    def axes(self) -> dict[str, Sequence[Scalar]]:
        """Every direction of the grid by name, swept settings last."""
        names: dict[str, Sequence[Scalar]] = {"data set": self.datasets, "recipe": self.recipes}
        return {**names, "objective": self.objectives, "seed": self.seeds, **self.sweep}

    def to_toml(self) -> str:
        """The grid as a file that loads to the same grid."""
        content = self.model_dump(mode="json", exclude_none=True)
        content["where"] = [{**entry["cells"], "set": entry["set"]} for entry in content["where"]]
        return tomli_w.dumps(content | ({"seeds": UNTIL_RESOLVED} if self.budget else {}), multiline_strings=True)

    def places(self) -> dict[str, Path]:
        """The folders of pretrained weights on this machine, by the weights' name."""
        return {name: machine_path(folder) for name, folder in self.weights.items()}

    def root(self, dataset: str) -> Path | None:
        """The folder of this data set, if the grid names it."""
        return machine_path(self.data[dataset].root) if dataset in self.data else None

    def columns(self, dataset: str) -> Columns:
        """The columns of this data set's tables, as the grid names them."""
        return columns_of(self.data[dataset].columns) if dataset in self.data else ()


def load(source: str, overrides: Sequence[str] = (), *, roots: Iterable[str] = (), weights: Iterable[str] = ()) -> Grid:
    """Read a shipped preset by name or a TOML file by path, apply what the command line says, and check everything.

    Args:
        source: a preset's name, or the path of a grid file.
        overrides: KEY=VALUE, the value in TOML; KEY is a field of the grid file or a setting's dotted name.
        roots: DATASET=DIR, or DIR alone for a grid with one data set.
        weights: NAME=DIR, where pretrained weights lie.

    Raises:
        UserError: with every problem at once.
    """
    content = content_of(read_text(source))
    grid = check(changed(content, overrides, roots=roots, weights=weights))
    for name, place in grid.data.items():  # not in `check`: what an older version saved is still shown
        catalog.has_folder(name, f"{content.where}: data.{name}.root = {place.root!r}")
    return grid


def check(content: GridDocument) -> Grid:
    """Validate a grid's content; all its problems are one error."""
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
    """The grid's seeds by which validation chooses, and searches that have no seed of their own."""
    if "select" not in content.fields:
        return []
    try:
        select = Select.model_validate(content.table("select"))
    except ValidationError:  # which is a problem itself
        return []
    names = {select.seed: f"select.seed = {select.seed}"}
    problems = [
        f"{names.get(seed, f'{seed}, a seed of the search by [select],')} stands in seeds, too; a cell is tested on "
        "seeds that did not choose for it"
        for seed in seeds
        if seed in select.seeds
    ]
    if select.repeats > 1 and content.values("seeds") == [UNTIL_RESOLVED]:
        problems.append("select.repeats: each seed has a search of its own, so seeds cannot be added until resolved")
    elif select.repeats not in (1, len(seeds)):
        problems.append(
            f"select.repeats = {select.repeats}: each seed is trained with the values of a search of its own, so "
            f"repeats should be 1, or {len(seeds)} as there are seeds"
        )
    return problems


def _within_budget(content: GridDocument) -> dict[str, Any]:
    """The budget of a grid with seeds = "until resolved", and all seeds that it allows; of another grid, nothing."""
    if content.values("seeds") != [UNTIL_RESOLVED]:
        return {}
    budget = content.table("budget")
    most = budget.get("seeds", Budget.model_fields["seeds"].default)
    return {"budget": budget, "seeds": list(range(most)) if isinstance(most, int) and most > 0 else [0]}
