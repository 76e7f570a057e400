"""Grid files: what a researcher writes in a dozen lines of TOML, checked as a whole before anything runs."""

import hashlib
import math
import os
import re
from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any, TypeVar

import tomli_w
from pydantic import AfterValidator, BaseModel, Field, NonNegativeInt, PlainValidator, ValidationError

from goalgrid.grid import catalog, uses
from goalgrid.grid.catalog import explain
from goalgrid.grid.errors import UserError, several, unknown, user_path
from goalgrid.grid.forms import TABLES, Scalar, extended, normal, parse
from goalgrid.grid.objectives import CATALOGUE, known_parameters, unknown_objective
from goalgrid.grid.objectives.goal_matrix import GOAL
from goalgrid.grid.objectives.parameters import VARIANTS
from goalgrid.grid.overrides import CHANGES, apply_override, changed_name, name_and_folder, place_data
from goalgrid.grid.resources import UNTIL_RESOLVED, Budget, Reliability, Resources
from goalgrid.grid.settings import DatasetSettings, TrainSettings
from goalgrid.grid.settings.base import Name, NoIdentity, Settings, check_name
from goalgrid.grid.settings.model import ModelSettings
from goalgrid.grid.settings.own_parts import own_parts
from goalgrid.grid.settings.pretrained_networks import RANDOM
from goalgrid.grid.uses import Use

SECTIONS: dict[str, type[Settings]] = {"dataset": DatasetSettings, "model": ModelSettings, "train": TrainSettings}
"""The sections of a trial's settings that all objectives share."""

TRACKERS = ("mlflow", "tensorboard", "wandb")
STARTS_FROM, FILE = "train.starts_from", "file:"
"""The setting that names a published checkpoint, and what its path begins with in a grid file."""

Collected = TypeVar("Collected", list[Any], dict[str, Any])


def _spelled_out(names: Any) -> Any:
    """The objectives, with the 15 names that the word "goal", alone or in a list, stands for."""
    names = [names] if isinstance(names, str) else names
    if not isinstance(names, list):
        return names
    return [name for entry in names for name in (GOAL if entry == "goal" else [entry])]


def _scalar(value: Any) -> Scalar:
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError("it should be finite")
    if not isinstance(value, Scalar):
        raise ValueError("it should be a number, a text, true or false; values to sweep stand in [sweep]")
    return value


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


class Location(Settings):
    """The place of a data set on this machine: never part of a trial's identity."""

    root: str = Field(description="folder of the data set on this machine")


class Grid(Settings):
    """A grid file's content: axes, overrides, and where and with what to run."""

    name: Annotated[str, AfterValidator(_grid_name)]
    """A grid that overrides change has them behind an @: `demo@train.epochs=1`."""
    datasets: Annotated[list[Name], Field(min_length=1)]
    recipes: Annotated[list[str], Field(min_length=1)]
    objectives: Annotated[list[str], Field(min_length=1)]
    seeds: Annotated[list[NonNegativeInt], Field(min_length=1)]
    set: dict[str, Value] = {}
    sweep: dict[str, Annotated[list[Value], Field(min_length=1)]] = {}
    exclude: list[Annotated[dict[str, Value], Field(min_length=1)]] = []
    """Cells to leave out: an entry names a value or a pattern of one axis or several, and all have to fit."""
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

    @property
    def plain_name(self) -> str:
        """The name without overrides."""
        return self.name.partition("@")[0]

    def axes(self) -> dict[str, Sequence[Scalar]]:
        """Every direction of the grid by name, swept settings last."""
        names: dict[str, Sequence[Scalar]] = {"data set": self.datasets, "recipe": self.recipes}
        return {**names, "objective": self.objectives, "seed": self.seeds, **self.sweep}

    def to_toml(self) -> str:
        """The grid as a file that loads to the same grid."""
        content = self.model_dump(mode="json", exclude_none=True)
        return tomli_w.dumps(content | ({"seeds": UNTIL_RESOLVED} if self.budget else {}), multiline_strings=True)

    def places(self) -> dict[str, Path]:
        """The folders of pretrained weights on this machine, by the weights' name."""
        return {name: user_path(folder) for name, folder in self.weights.items()}

    def root(self, dataset: str) -> Path | None:
        """The folder of this data set, if the grid names it."""
        return user_path(self.data[dataset].root) if dataset in self.data else None


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
    where = f"grid {source!r}"
    grid = build(_whole(source, Path()), overrides, roots=roots, weights=weights, where=where)
    for name, place in grid.data.items():  # not in `build`: what an older version saved is still shown
        catalog.has_folder(name, f"{where}: data.{name}.root = {place.root!r}")
    return grid


def datasets_named(source: str, overrides: Sequence[str] = ()) -> list[str]:
    """The data sets that a shipped grid or a grid file names after these overrides; whether they exist is not checked.

    Raises:
        UserError: as `load`, of the file and the overrides alone.
    """
    content = _whole(source, Path())
    for override in overrides:
        apply_override(content, override, Grid.model_fields)
    named = normal(content, f"grid {source!r}").get("datasets")
    return [name for name in named if isinstance(name, str)] if isinstance(named, list) else []


def _whole(source: str, folder: Path, before: tuple[str, ...] = ()) -> dict[str, Any]:
    """The content of a shipped grid or of a grid file, over that of the grid that it extends.

    Args:
        folder: where a path begins.
        before: the grids that extend this grid, the first one first.

    Raises:
        UserError: a grid is missing, no TOML, or extends itself; or a file that it names cannot be read.
    """
    where, path = f"grid {source!r}", folder / user_path(source)
    place = os.path.realpath(path) if path.suffix == ".toml" else source
    if place in before:
        circle = [*before[before.index(place) :], place]
        raise UserError(f"it extends itself: {' -> '.join(Path(each).name for each in circle)}.")
    if path.suffix == ".toml":
        content = parse(path)
    elif source in catalog.names("presets"):
        content = catalog.read("presets", source)
    else:
        hint = "Or give the path of a grid file, ending in .toml."
        raise UserError(unknown("grid", source, catalog.names("presets"), hint=hint))
    content = normal(content, where)
    if "extends" in content:
        base = content.pop("extends")
        if not isinstance(base, str):
            raise UserError(f"{where}: extends = {base!r} should be the path of a grid file, or a shipped grid's name.")
        try:
            content = extended(_whole(base, path.parent, (*before, place)), content)
        except UserError as error:
            raise UserError(f"{where} extends {base!r}: {error}") from None
    return read_own(content, path.parent, where)


def build(
    content: dict[str, Any],
    overrides: Sequence[str] = (),
    *,
    roots: Iterable[str] = (),
    weights: Iterable[str] = (),
    where: str,
) -> Grid:
    """The grid of a file's content, after what the command line says. A grid with other trials has another name.

    Raises:
        UserError: with every problem at once.
    """
    content = normal(content, where)
    if any(not isinstance(content.get(table, {}), dict) for table in TABLES):
        return check(content, where=where)
    changes = [apply_override(content, override, Grid.model_fields) for override in overrides]
    if isinstance(content.get("name"), str):
        content["name"] = changed_name(content["name"], changes)
    for root in roots:
        place_data(content, root)
    content = read_own(content, Path(), where)
    places = dict(map(name_and_folder, weights))
    content["weights"] = {**_given(content, "weights", dict), **places}
    grid = check(content, where=where)
    known = _weights_of(grid)
    if wrong := [name for name in places if name not in known]:
        raise UserError(unknown("weights", wrong[0], sorted(known), where="in --weights"))
    return grid


def read_own(content: Mapping[str, Any], folder: Path, where: str) -> dict[str, Any]:
    """The content with the text of each file that it uses, and all recipes of the user's own, in place of paths.

    Args:
        folder: where paths begin.

    Raises:
        UserError: with every file that cannot be read.
    """
    content, problems = _hashed(normal(content, where), folder), list[str]()
    tables = _given(content, "recipe", dict)
    own = catalog.OwnRecipes({name: table for name, table in tables.items() if isinstance(table, dict)}, folder)

    def used(entry: Any) -> Any:
        if isinstance(entry, str):
            return uses.read(entry, folder).model_dump()
        with suppress(ValidationError):  # a grid that ran, read as a file
            return uses.again(Use.model_validate(entry), where).model_dump()
        return entry

    def recipe(entry: Any) -> Any:
        is_own = isinstance(entry, str) and (entry.endswith(".toml") or isinstance(tables.get(entry), dict))
        return own.add(entry) if is_own else entry

    def each(read: Callable[[Any], Any], entries: Iterable[Any]) -> Iterator[Any]:
        for entry in entries:
            try:
                yield read(entry)
            except UserError as error:
                problems.append(str(error))

    if isinstance(content.get("uses"), list):
        content["uses"] = list(each(used, content["uses"]))
        _activate(content)  # a recipe may name a pooling
    if isinstance(content.get("recipes"), list):
        content["recipes"] = list(each(recipe, content["recipes"]))
    list(each(recipe, tables))
    others = {name: table for name, table in tables.items() if not isinstance(table, dict)}
    if own.whole or tables:
        content["recipe"] = {**others, **own.whole}
    if problems:
        raise several(where, dict.fromkeys(problems))
    return content


def _hashed(content: dict[str, Any], folder: Path) -> dict[str, Any]:
    """The content with the hash of each published checkpoint in place of its path, and with the path beside.

    Raises:
        UserError: a file cannot be read.
    """
    places = dict[str, str]()

    def kept(value: Any) -> Any:
        if not isinstance(value, str) or not value.startswith(FILE):
            return value
        path = (folder / user_path(value.removeprefix(FILE))).absolute()
        try:
            with path.open("rb") as file:
                digest = f"sha256:{hashlib.file_digest(file, 'sha256').hexdigest()}"
        except OSError as error:
            raise UserError(f"train.starts_from = {value!r}: {path} cannot be read: {error.strerror}.") from error
        places[digest] = str(path)
        return digest

    for table in ("set", "sweep"):
        values = _given(content, table, dict)
        if (value := values.get(STARTS_FROM)) is not None:
            found = [kept(each) for each in value] if isinstance(value, list) else kept(value)
            content[table] = {**values, STARTS_FROM: found}
    return {**content, "checkpoints": {**_given(content, "checkpoints", dict), **places}} if places else content


def make_known(grid: Grid) -> None:
    """Make what the grid uses of a user's own known to this process, in place of what another grid uses."""
    uses.activate(grid.uses)
    catalog.take_over(grid.recipe)


def check(content: Mapping[str, Any], *, where: str) -> Grid:
    """Validate a grid file's content.

    Raises:
        UserError: with every problem of form and every unknown name.
    """
    content = normal(content, where)
    if "objectives" in content:
        content["objectives"] = _spelled_out(content["objectives"])
    catalog.take_over(_given(content, "recipe", dict))
    try:
        _activate(content)
    except UserError as error:
        raise several(where, [str(error)]) from None
    problems = _budgeted(content) + _unknown_names(content) + _doubled(content) + _wrong_values(content)
    try:
        grid = Grid.model_validate(content)
    except ValidationError as error:
        raise several(where, explain(error, Grid) + problems) from None
    if problems:
        raise several(where, problems)
    return grid


def _budgeted(content: dict[str, Any]) -> list[str]:
    """Write all seeds that a budget allows in place of "until resolved"; what is wrong with seeds and budget."""
    if content.get("seeds") != [UNTIL_RESOLVED]:
        if any(isinstance(seed, str) for seed in _given(content, "seeds", list)):
            return [f'seeds: the only text that stands there is "{UNTIL_RESOLVED}"']
        wrong = "seeds" in content and "budget" in content
        return [f'[budget] goes with seeds = "{UNTIL_RESOLVED}", not with a list of seeds'] if wrong else []
    content.setdefault("budget", {})
    most = _given(content, "budget", dict).get("seeds", Budget.model_fields["seeds"].default)
    content["seeds"] = list(range(most)) if isinstance(most, int) and most > 0 else [0]
    return []


def _activate(content: Mapping[str, Any]) -> None:
    """Make known what the content uses; a wrong entry is left to pydantic."""
    with suppress(ValidationError):
        uses.activate(map(Use.model_validate, _given(content, "uses", list)))


def dotted_names() -> list[str]:
    """Every setting that a grid file may set or sweep."""
    names = [name for section, model in SECTIONS.items() for name in _fields(section, model)]
    names.remove("dataset.name")
    for kind, parts in own_parts.items():
        declared = sorted({name for part in parts.values() for name in part.parameters})
        names += [f"model.{kind.partition(' ')[0]}.parameters.{name}" for name in declared]
    return [*names, "objective.variant", *(f"objective.{name}" for name in sorted(known_parameters()))]


def _fields(prefix: str, model: type[BaseModel]) -> list[str]:
    """The dotted names of a model's fields; for a field that holds a model, the names of that model's fields."""
    names: list[str] = []
    for name, field in model.model_fields.items():
        models = catalog.models_in(field.annotation)
        inner = [dotted for model in models for dotted in _fields(f"{prefix}.{name}", model)]
        names += inner or [f"{prefix}.{name}"]
    return list(dict.fromkeys(names))


def _given(content: Mapping[str, Any], field: str, kind: type[Collected]) -> Collected:
    """The list or table in this field; empty for a value of another kind, which pydantic reports."""
    value = content.get(field)
    return value if isinstance(value, kind) else kind()


def _unknown_names(content: Mapping[str, Any]) -> list[str]:
    datasets, recipes = sorted({*catalog.names("datasets"), *_given(content, "data", dict)}), catalog.recipe_names()
    hint = "For data of your own, add [data.NAME] with its root."
    axes: dict[str, tuple[Collection[str], Callable[[str, str], str]]] = {
        "datasets": (datasets, lambda name, where: unknown("dataset", name, datasets, where=where, hint=hint)),
        "recipes": (recipes, lambda name, where: unknown("recipe", name, recipes, where=where)),
        "objectives": (CATALOGUE, unknown_objective),
    }
    problems = [
        problem(name, f"in {axis}[{index}]")
        for axis, (known, problem) in axes.items()
        for index, name in enumerate(_given(content, axis, list))
        if isinstance(name, str) and name not in known
    ]
    settings = dotted_names()
    for table in ("set", "sweep"):
        wrong = [name for name in _given(content, table, dict) if name not in settings]
        for name in wrong:
            section = name.partition(".")[0] + "."
            near = [known for known in settings if known.startswith(section)] or settings
            problems.append(unknown("setting", name, near, where=f"in [{table}]"))
    return problems


def _doubled(content: Mapping[str, Any]) -> list[str]:
    """Values that an axis has more than once."""
    sweep = _given(content, "sweep", dict)
    axes = {axis: _given(content, axis, list) for axis in ("datasets", "recipes", "objectives", "seeds", "tables")}
    axes |= {f"sweep {name!r}": _given(sweep, name, list) for name in sweep}
    return [
        f"{axis}: {value} stands there more than once"
        for axis, values in axes.items()
        for value, count in Counter(value for value in values if isinstance(value, Hashable)).items()
        if count > 1
    ]


def _wrong_values(content: Mapping[str, Any]) -> list[str]:
    """Values, set or swept, that are no protocol of a data set, no variant, or no value of an objective's parameter."""
    datasets = [name for name in _given(content, "datasets", list) if isinstance(name, str)]
    objectives = [CATALOGUE[name].parameters for name in CATALOGUE if name in _given(content, "objectives", list)]
    sweep = _given(content, "sweep", dict)
    swept = [(key, value) for key in sweep for value in _given(sweep, key, list)]
    problems = []
    for key, value in [*_given(content, "set", dict).items(), *swept]:
        section, _, name = key.partition(".")
        field = SECTIONS[section].model_fields.get(name) if section in SECTIONS else None
        if key in sweep and field and NoIdentity in field.metadata:
            problems.append(f"{key} changes no number of a trial, so it is no axis; give one value in [set]")
        holders = [entry[name] for entry in objectives if section == "objective" and name in entry]
        if key == "dataset.protocol":
            for dataset in datasets:
                if value not in (known := catalog.protocols(dataset)):
                    where = f"of data set {dataset!r} in dataset.protocol"
                    problems.append(unknown("protocol", value, known, where=where))
        elif key == "objective.variant" and value not in VARIANTS:
            problems.append(unknown("variant", value, VARIANTS, where="in objective.variant"))
        elif section == "objective" and name in known_parameters() and objectives and not holders:
            problems.append(f"{key}: none of the grid's objectives has this parameter")
        for parameter in holders:
            try:
                parameter.parse(value)
            except ValueError as error:
                problems.append(f"{key} {error}")
    return list(dict.fromkeys(problems))


def _weights_of(grid: Grid) -> set[str]:
    """The names of pretrained weights in all recipes, and in the settings of a grid."""
    models = [catalog.recipe(name).model for name in catalog.recipe_names()]
    chosen = {key: [value] for key, value in grid.set.items()} | grid.sweep
    keys = (".weights", ".pieces")
    given = [str(value) for key, values in chosen.items() for value in values if key.endswith(keys)]
    return {*given, *(part.weights for model in models for part in model.pretrained)} - {RANDOM}
