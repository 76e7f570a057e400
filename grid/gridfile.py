"""Grid files: what a researcher writes in a dozen lines of TOML, checked as a whole before anything runs."""

import tomllib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin

import tomli_w
from pydantic import BaseModel, BeforeValidator, Field, ValidationError

from grid import catalog
from grid.catalog import explain
from grid.encoders import ModelSettings
from grid.errors import UserError, several, unknown
from grid.objectives import GOAL, OBJECTIVES, VARIANTS, known_parameters, unknown_objective
from grid.resources import Reliability, Resources
from grid.settings import DatasetSettings, TrainSettings
from grid.settings_base import Settings

Scalar = bool | int | float | str


def _spelled_out(names: Any) -> Any:
    """The word "goal", alone or in a list, stands for the 15 objectives."""
    if isinstance(names, str):
        names = [names]
    if not isinstance(names, list):
        return names
    return [name for entry in names for name in (GOAL if entry == "goal" else [entry])]


class Location(Settings):
    """Where a data set lies on this machine: never part of a trial's identity."""

    root: str


class Grid(Settings):
    """A grid file's content: axes, overrides, and where and with what to run."""

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")]
    datasets: Annotated[list[str], Field(min_length=1)]
    recipes: Annotated[list[str], Field(min_length=1)]
    objectives: Annotated[list[str], Field(min_length=1), BeforeValidator(_spelled_out)]
    seeds: Annotated[list[Annotated[int, Field(ge=0)]], Field(min_length=1)]
    set: dict[str, Scalar] = {}
    sweep: dict[str, Annotated[list[Scalar], Field(min_length=1)]] = {}
    data: dict[str, Location] = {}
    weights: dict[str, str] = {}
    tables: list[str] = []
    """The papers' tables that it is for, which `plan` says whether it fills; their names are known to `results`."""
    resources: Resources = Resources()
    reliability: Reliability = Reliability()

    def axes(self) -> dict[str, Sequence[Scalar]]:
        """Every direction of the grid by name, swept settings last."""
        names: dict[str, Sequence[Scalar]] = {"data set": self.datasets, "recipe": self.recipes}
        return {**names, "objective": self.objectives, "seed": self.seeds, **self.sweep}

    def to_toml(self) -> str:
        """The grid as a file that loads to the same grid."""
        return tomli_w.dumps(self.model_dump(mode="json", exclude_none=True))

    def places(self) -> dict[str, Path]:
        """Where named pretrained weights lie on this machine."""
        return {name: Path(folder).expanduser() for name, folder in self.weights.items()}

    def root(self, dataset: str) -> Path | None:
        """Where this data set lies, if the grid says so."""
        return Path(self.data[dataset].root).expanduser() if dataset in self.data else None


def load(source: str, overrides: Iterable[str] = (), *, roots: Iterable[str] = (), weights: Iterable[str] = ()) -> Grid:
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
        content = _parse(path)
    elif source in catalog.names("presets"):
        content = catalog.read("presets", source)
    else:
        hint = "Or give the path of a grid file, ending in .toml."
        raise UserError(unknown("grid", source, catalog.names("presets"), hint=hint))
    for override in overrides:
        _apply(content, override)
    for root in roots:
        _place(content, root)
    for place in weights:
        name, separator, folder = place.partition("=")
        if not separator:
            raise UserError(f"--weights {place!r} is not NAME=DIR, the name as in the recipe.")
        content.setdefault("weights", {})[name] = str(Path(folder).expanduser().absolute())
    return check(content, where=f"grid {source!r}")


def check(content: Mapping[str, Any], *, where: str) -> Grid:
    """Validate a grid file's content.

    Raises:
        UserError: with every problem of form and every unknown name.
    """
    problems: list[str] = []
    grid: Grid | None = None
    try:
        grid = Grid.model_validate(content)
    except ValidationError as error:
        problems += explain(error)
    problems += _unknown_names(content)
    if problems or grid is None:
        raise several(where, problems)
    return grid


def dotted_names() -> list[str]:
    """Every setting that a grid file may set or sweep."""
    return [
        *_fields("dataset", DatasetSettings, leave_out={"name"}),
        *_fields("model", ModelSettings),
        *_fields("train", TrainSettings),
        "objective.variant",
        *(f"objective.{name}" for name in sorted(known_parameters())),
    ]


def _fields(prefix: str, model: type[BaseModel], leave_out: frozenset[str] | set[str] = frozenset()) -> list[str]:
    names: dict[str, None] = {}
    for name, field in model.model_fields.items():
        inner = [
            kind for kind in _alternatives(field.annotation) if isinstance(kind, type) and issubclass(kind, BaseModel)
        ]
        if name in leave_out:
            continue
        for kind in inner:
            names.update(dict.fromkeys(_fields(f"{prefix}.{name}", kind)))
        if not inner:
            names[f"{prefix}.{name}"] = None
    return list(names)


def _alternatives(annotation: Any) -> list[Any]:
    if get_origin(annotation) is Annotated:
        return _alternatives(get_args(annotation)[0])
    if get_origin(annotation) in (Union, UnionType):
        return list(get_args(annotation))
    return [annotation]


def _unknown_names(content: Mapping[str, Any]) -> list[str]:
    located = content.get("data") if isinstance(content.get("data"), dict) else {}
    known_datasets = [*catalog.names("datasets"), *(name for name in located or {})]
    known_recipes = catalog.names("recipes")
    problems = [
        unknown("dataset", name, sorted(set(known_datasets)), where=f"in datasets[{index}]", hint=_OWN_DATA)
        for index, name in _strings(content, "datasets")
        if name not in known_datasets
    ]
    problems += [
        unknown("recipe", name, known_recipes, where=f"in recipes[{index}]")
        for index, name in _strings(content, "recipes")
        if name not in known_recipes
    ]
    problems += [
        unknown_objective(name, f"in objectives[{index}]")
        for index, name in _strings({"objectives": _spelled_out(content.get("objectives"))}, "objectives")
        if name not in OBJECTIVES
    ]
    known_settings = dotted_names()
    for table in ("set", "sweep"):
        names = content.get(table)
        for name in names if isinstance(names, dict) else ():
            if name not in known_settings:
                problems.append(unknown("setting", name, known_settings, where=f"in [{table}]"))
    return problems + _doubled(content) + _objective_values(content) + _unknown_protocols(content)


_OWN_DATA = "For data of your own, add [data.NAME] with its root."


def _strings(content: Mapping[str, Any], field: str) -> list[tuple[int, str]]:
    values = content.get(field)
    return [(i, v) for i, v in enumerate(values) if isinstance(v, str)] if isinstance(values, list) else []


def _doubled(content: Mapping[str, Any]) -> list[str]:
    problems = []
    axes = {
        field: _spelled_out(content.get(field)) for field in ("datasets", "recipes", "objectives", "seeds", "tables")
    }
    sweep = content.get("sweep")
    axes |= {f"sweep {name!r}": values for name, values in (sweep if isinstance(sweep, dict) else {}).items()}
    for field, values in axes.items():
        if isinstance(values, list):
            twice = {str(value) for value in values if values.count(value) > 1}
            problems += [f"{field}: {value} stands there more than once" for value in sorted(twice)]
    return problems


def _given(content: Mapping[str, Any]) -> list[tuple[str, Any]]:
    """Every value that the grid sets or sweeps, with its setting's dotted name."""
    given: list[tuple[str, Any]] = []
    for table in ("set", "sweep"):
        values = content.get(table)
        for key, value in (values if isinstance(values, dict) else {}).items():
            given += [(key, item) for item in (value if table == "sweep" and isinstance(value, list) else [value])]
    return given


def _unknown_protocols(content: Mapping[str, Any]) -> list[str]:
    """Protocols that a data set of the grid does not have."""
    return [
        unknown("protocol", value, catalog.protocols(dataset), where=f"of data set {dataset!r} in dataset.protocol")
        for key, value in _given(content)
        for _, dataset in _strings(content, "datasets")
        if key == "dataset.protocol" and value not in catalog.protocols(dataset)
    ]


def _objective_values(content: Mapping[str, Any]) -> list[str]:
    """Values of objective parameters that have the wrong type, and parameters that no objective of the grid has."""
    named = [name for _, name in _strings({"o": _spelled_out(content.get("objectives"))}, "o") if name in OBJECTIVES]
    problems: dict[str, None] = {}
    for key, value in _given(content):
        parameter = key.removeprefix("objective.")
        if key == "objective.variant" and value not in VARIANTS:
            problems[unknown("variant", value, VARIANTS, where="in objective.variant")] = None
        if parameter == key or parameter not in known_parameters():
            continue
        holders = [name for name in named if parameter in OBJECTIVES[name]]
        if named and not holders:
            problems[f"{key}: none of the grid's objectives has this parameter"] = None
        for name in holders:
            try:
                OBJECTIVES[name][parameter].parse(value)
            except ValueError as error:
                problems[f"{key} {error}"] = None
    return list(problems)


def _parse(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
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


def _apply(content: dict[str, Any], override: str) -> None:
    key, value = key_and_value(override)
    first, _, rest = key.partition(".")
    if first in ("set", "sweep") and rest:
        content.setdefault(first, {})[rest] = value
    elif first in ("data", "resources", "reliability") and rest:
        *path, last = key.split(".")
        table = content
        for part in path:
            table = table.setdefault(part, {})
        table[last] = value
    elif key in Grid.model_fields:
        content[key] = value
    elif isinstance(value, list):
        raise UserError(f"--set {override!r} gives a list; to sweep a setting, write --set 'sweep.{override}'.")
    else:
        content.setdefault("set", {})[key] = value


def _place(content: dict[str, Any], root: str) -> None:
    dataset, separator, folder = root.partition("=")
    if not separator:
        named = content.get("datasets", [])
        if len(named) != 1:
            raise UserError(f"--root {root}: the grid has {len(named)} data sets; say which: --root NAME={root}.")
        dataset, folder = named[0], root
    content.setdefault("data", {})[dataset] = {"root": str(Path(folder).expanduser().absolute())}
