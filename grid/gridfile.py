"""Grid files: what a researcher writes in a dozen lines of TOML, checked as a whole before anything runs."""

import hashlib
import math
import re
import tomllib
from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any, TypeVar, get_args

import tomli_w
from pydantic import AfterValidator, BaseModel, Field, NonNegativeInt, PlainValidator, ValidationError

from grid import catalog, uses
from grid.catalog import explain
from grid.errors import UserError, several, unknown
from grid.objectives import CATALOGUE, OBJECTIVES, known_parameters, unknown_objective
from grid.objectives.goal_matrix import GOAL
from grid.objectives.parameters import VARIANTS
from grid.resources import Reliability, Resources
from grid.settings import DatasetSettings, TrainSettings
from grid.settings.base import Name, Settings, check_name
from grid.settings.encoders import RANDOM, Pretrained
from grid.settings.model import ModelSettings
from grid.settings.own import own_parts
from grid.uses import Use

Scalar = bool | int | float | str
SECTIONS: dict[str, type[Settings]] = {"dataset": DatasetSettings, "model": ModelSettings, "train": TrainSettings}
"""The sections of a trial's settings that all objectives share."""

NO_TRIALS = ("name", "tables", "data", "weights", "resources", "reliability")
"""Fields of a grid file that change no trial."""
CHANGES = r"[A-Za-z0-9._+,=-]+"
"""Characters of overrides in a grid's name: no shell and no file system minds them."""
READABLE = 60
"""Characters of overrides that stand in a grid's name; of longer overrides, their hash."""

TABLES = ("recipe", "set", "sweep", "data", "weights", "resources", "reliability")
LISTS = ("datasets", "recipes", "objectives", "seeds", "tables", "uses")
"""Fields that hold lists; a single value stands for a list of one."""

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
    data: dict[Name, Location] = {}
    weights: dict[str, str] = {}
    recipe: dict[Name, dict[str, Any]] = {}
    """The user's own recipes, whole; in a grid file, a table may extend another recipe."""
    uses: list[Use] = []
    """The user's own files and packages, which define objectives beside ours; in a grid file, their paths and names."""
    tables: list[str] = []
    """Tables of the papers; `plan` says which of their numbers the grid fills. `results` knows their names."""
    resources: Resources = Resources()
    reliability: Reliability = Reliability()

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
        return tomli_w.dumps(self.model_dump(mode="json", exclude_none=True), multiline_strings=True)

    def places(self) -> dict[str, Path]:
        """The folders of pretrained weights on this machine, by the weights' name."""
        return {name: Path(folder).expanduser() for name, folder in self.weights.items()}

    def root(self, dataset: str) -> Path | None:
        """The folder of this data set, if the grid names it."""
        return Path(self.data[dataset].root).expanduser() if dataset in self.data else None


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
    path = Path(source)
    if path.suffix == ".toml":
        content = parse(path)
    elif source in catalog.names("presets"):
        content = catalog.read("presets", source)
    else:
        hint = "Or give the path of a grid file, ending in .toml."
        raise UserError(unknown("grid", source, catalog.names("presets"), hint=hint))
    where = f"grid {source!r}"
    return build(read_own(content, path.parent, where), overrides, roots=roots, weights=weights, where=where)


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
    content = _normal(content, where)
    if any(not isinstance(content.get(table, {}), dict) for table in TABLES):
        return check(content, where=where)
    changes = list(map(key_and_value, overrides))
    for override, (key, value) in zip(overrides, changes, strict=True):
        _apply(content, override, key, value)
    if isinstance(content.get("name"), str):
        content["name"] = changed_name(content["name"], changes)
    for root in roots:
        _place(content, root)
    content = read_own(content, Path(), where)
    places = dict(map(_name_and_folder, weights))
    content["weights"] = {**_given(content, "weights", dict), **places}
    grid = check(content, where=where)
    known = _weights_of(grid)
    if wrong := [name for name in places if name not in known]:
        raise UserError(unknown("weights", wrong[0], sorted(known), where="in --weights"))
    return grid


def changed_name(name: str, changes: Iterable[tuple[str, Any]]) -> str:
    """The name of a grid after changes by `--set`: with the changes of its trials, or with their hash if too long.

    >>> changed_name("demo", [("train.epochs", 1), ("seeds", [0, 1]), ("resources.cpu", 2)])
    'demo@seeds=0+1,train.epochs=1'
    >>> changed_name("demo@train.epochs=1", [("train.epochs", 1)])
    'demo@train.epochs=1'

    A change of the name itself is the user's choice of the whole name.
    """
    of_trials = {key.removeprefix("set."): value for key, value in changes if key.split(".")[0] not in NO_TRIALS}
    if not of_trials or any(key == "name" for key, _ in changes):
        return name
    lists = {key: value if isinstance(value, list) else [value] for key, value in sorted(of_trials.items())}
    text = ",".join(f"{key}={'+'.join(map(str, values))}" for key, values in lists.items())
    if len(text) > READABLE or not re.fullmatch(CHANGES, text):
        text = hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()[:8]
    plain, _, before = name.partition("@")
    return name if before == text else f"{plain}@{before}{',' * bool(before)}{text}"


def read_own(content: Mapping[str, Any], folder: Path, where: str) -> dict[str, Any]:
    """The content with the text of each file that it uses, and all recipes of the user's own, in place of paths.

    Args:
        folder: where paths begin.

    Raises:
        UserError: with every file that cannot be read.
    """
    content, problems = _normal(content, where), list[str]()
    tables = _given(content, "recipe", dict)
    own = catalog.OwnRecipes({name: table for name, table in tables.items() if isinstance(table, dict)}, folder)

    def used(entry: Any) -> Any:
        return uses.read(entry, folder).model_dump() if isinstance(entry, str) else entry

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


def make_known(grid: Grid) -> None:
    """Make what the grid uses of a user's own known to this process, in place of what another grid uses."""
    uses.activate(grid.uses)
    catalog.take_over(grid.recipe)


def check(content: Mapping[str, Any], *, where: str) -> Grid:
    """Validate a grid file's content.

    Raises:
        UserError: with every problem of form and every unknown name.
    """
    content = _normal(content, where)
    if "objectives" in content:
        content["objectives"] = _spelled_out(content["objectives"])
    catalog.take_over(_given(content, "recipe", dict))
    try:
        _activate(content)
    except UserError as error:
        raise several(where, [str(error)]) from None
    problems = _unknown_names(content) + _doubled(content) + _wrong_values(content)
    try:
        grid = Grid.model_validate(content)
    except ValidationError as error:
        raise several(where, explain(error, Grid) + problems) from None
    if problems:
        raise several(where, problems)
    return grid


def _activate(content: Mapping[str, Any]) -> None:
    """Make known what the content uses; a wrong entry is left to pydantic."""
    with suppress(ValidationError):
        uses.activate(map(Use.model_validate, _given(content, "uses", list)))


def _normal(content: Mapping[str, Any], where: str) -> dict[str, Any]:
    """The content with a list of one for a single value of an axis, and dotted names for tables in [set] and [sweep].

    Raises:
        UserError: a setting stands there twice, with a dotted name and in a table.
    """
    normal = {key: [value] if key in LISTS and isinstance(value, Scalar) else value for key, value in content.items()}
    for table in ("set", "sweep"):
        if isinstance(content.get(table), dict):
            pairs = list(_dotted(content[table]))
            if len(dict(pairs)) < len(pairs):
                twice = next(name for name, count in Counter(name for name, _ in pairs).items() if count > 1)
                raise UserError(f"{where}: {twice} stands in [{table}] more than once")
            normal[table] = dict(pairs)
    if swept := _given(normal, "sweep", dict):
        normal["sweep"] = {name: [value] if isinstance(value, Scalar) else value for name, value in swept.items()}
    return normal


def _dotted(table: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """The values of a table and of the tables in it, by dotted names."""
    for key, value in table.items():
        if isinstance(value, dict):
            yield from _dotted(value, f"{prefix}{key}.")
        else:
            yield prefix + key, value


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
        kinds = get_args(field.annotation) or [field.annotation]
        models = [kind for kind in kinds if isinstance(kind, type) and issubclass(kind, BaseModel)]
        inner = [dotted for kind in models for dotted in _fields(f"{prefix}.{name}", kind)]
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
        "objectives": (OBJECTIVES, unknown_objective),
    }
    problems = [
        problem(name, f"in {axis}[{index}]")
        for axis, (known, problem) in axes.items()
        for index, name in enumerate(_given(content, axis, list))
        if isinstance(name, str) and name not in known
    ]
    problems += [
        f"objective {name!r} in objectives[{index}] cannot be trained: {CATALOGUE[name].untrainable}"
        for index, name in enumerate(_given(content, "objectives", list))
        if name in OBJECTIVES and CATALOGUE[name].untrainable
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
    objectives = [OBJECTIVES[name] for name in OBJECTIVES if name in _given(content, "objectives", list)]
    sweep = _given(content, "sweep", dict)
    swept = [(key, value) for key in sweep for value in _given(sweep, key, list)]
    problems = []
    for key, value in [*_given(content, "set", dict).items(), *swept]:
        section, _, name = key.partition(".")
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


def parse(path: Path) -> dict[str, Any]:
    """The content of a grid file, not yet checked.

    Raises:
        UserError: there is no such file, or it is no TOML.
    """
    try:
        return tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except FileNotFoundError:
        raise UserError(f"no grid file at {path}. `goalgrid grids` lists the shipped ones.") from None
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"cannot read grid file {path}: {error}") from error
    except tomllib.TOMLDecodeError as error:
        raise UserError(f"grid file {path} is not valid TOML: {error}") from error


def key_and_value(override: str) -> tuple[str, Any]:
    """The two halves of KEY=VALUE, the value read as TOML, or as it stands where it is none.

    >>> key_and_value("seeds=[0, 1]"), key_and_value("variant=released")
    (('seeds', [0, 1]), ('variant', 'released'))

    Raises:
        UserError: it has no "=".
    """
    key, separator, text = override.partition("=")
    if not separator or not key:
        raise UserError(f"--set {override!r} is not KEY=VALUE, e.g. --set train.epochs=2 or --set 'seeds=[0,1]'.")
    try:
        return key, tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return key, text


def _apply(content: dict[str, Any], override: str, key: str, value: Any) -> None:
    first, _, rest = key.partition(".")
    if first in ("set", "sweep") and rest:
        content[first] = {**content.get(first, {}), rest: value}
    elif first in ("data", "resources", "reliability") and rest:
        *path, last = key.split(".")
        table = content
        for part in path:
            table[part] = dict(table[part]) if isinstance(table.get(part), dict) else {}
            table = table[part]
        table[last] = value
    elif key in Grid.model_fields:
        content[key] = value
    elif isinstance(value, list):
        raise UserError(f"--set {override!r} gives a list; to sweep a setting, write --set 'sweep.{override}'.")
    else:
        content["set"] = {**content.get("set", {}), key: value}


def _name_and_folder(place: str) -> tuple[str, str]:
    name, separator, folder = place.partition("=")
    if not separator:
        raise UserError(f"--weights {place!r} is not NAME=DIR, the name as in the recipe.")
    return name, str(Path(folder).expanduser().absolute())


def _weights_of(grid: Grid) -> set[str]:
    """The names of pretrained weights in all recipes, and in the settings of a grid."""
    models = [catalog.recipe(name).model for name in catalog.recipe_names()]
    chosen = {key: [value] for key, value in grid.set.items()} | grid.sweep
    given = [str(value) for key, values in chosen.items() for value in values if key.endswith(".weights")]
    parts = [part for model in models for part in (model.image, model.text)]
    return {*given, *(part.weights for part in parts if isinstance(part, Pretrained))} - {RANDOM}


def _place(content: dict[str, Any], root: str) -> None:
    dataset, separator, folder = root.partition("=")
    named = _given(content, "datasets", list)
    if separator and dataset not in named:
        raise UserError(unknown("data set", dataset, named, where=f"in --root {root}", hint="Or DIR alone."))
    if not separator:
        if len(named) != 1:
            raise UserError(f"--root {root}: the grid has {len(named)} data sets; say which: --root NAME={root}.")
        dataset, folder = named[0], root
    content["data"] = {**content.get("data", {}), dataset: {"root": str(Path(folder).expanduser().absolute())}}
