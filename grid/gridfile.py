"""Grid files: what a researcher writes in a dozen lines of TOML, checked as a whole before anything runs."""

import tomllib
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, get_args

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
        content = parse(path)
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
    names = _unknown_names(content) + _doubled(content) + _objective_values(content) + _unknown_protocols(content)
    try:
        grid = Grid.model_validate(content)
    except ValidationError as error:
        raise several(where, explain(error) + names) from None
    if names:
        raise several(where, names)
    return grid


def dotted_names() -> list[str]:
    """Every setting that a grid file may set or sweep."""
    sections: dict[str, type[Settings]] = {"dataset": DatasetSettings, "model": ModelSettings, "train": TrainSettings}
    names = [name for section, model in sections.items() for name in _fields(section, model)]
    names.remove("dataset.name")
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


def _list(content: Mapping[str, Any], field: str) -> list[Any]:
    """The list in this field; empty for any other value, which pydantic reports."""
    values = _spelled_out(content.get(field)) if field == "objectives" else content.get(field)
    return values if isinstance(values, list) else []


def _table(content: Mapping[str, Any], field: str) -> dict[str, Any]:
    """The table in this field; empty for any other value, which pydantic reports."""
    values = content.get(field)
    return values if isinstance(values, dict) else {}


def _unknown_names(content: Mapping[str, Any]) -> list[str]:
    datasets = sorted({*catalog.names("datasets"), *_table(content, "data")})
    known: dict[str, Collection[str]] = {
        "datasets": datasets,
        "recipes": catalog.names("recipes"),
        "objectives": OBJECTIVES,
    }
    problems = []
    for axis, names in known.items():
        for index, name in enumerate(_list(content, axis)):
            where = f"in {axis}[{index}]"
            if not isinstance(name, str) or name in names:
                continue
            if axis == "objectives":
                problems.append(unknown_objective(name, where))
            else:
                hint = "For data of your own, add [data.NAME] with its root." if axis == "datasets" else ""
                problems.append(unknown(axis.removesuffix("s"), name, names, where=where, hint=hint))
    settings = dotted_names()
    for table in ("set", "sweep"):
        wrong = [name for name in _table(content, table) if name not in settings]
        problems += [unknown("setting", name, settings, where=f"in [{table}]") for name in wrong]
    return problems


def _doubled(content: Mapping[str, Any]) -> list[str]:
    """Values that an axis has more than once."""
    sweep = _table(content, "sweep")
    axes = {axis: _list(content, axis) for axis in ("datasets", "recipes", "objectives", "seeds", "tables")}
    axes |= {f"sweep {name!r}": _list(sweep, name) for name in sweep}
    return [
        f"{axis}: {value} stands there more than once"
        for axis, values in axes.items()
        for value in sorted({str(value) for value in values if values.count(value) > 1})
    ]


def _given(content: Mapping[str, Any]) -> list[tuple[str, Any]]:
    """Every value that the grid sets or sweeps, with its setting's dotted name."""
    sweep = _table(content, "sweep")
    swept = [(key, value) for key in sweep for value in _list(sweep, key)]
    return [*_table(content, "set").items(), *swept]


def _unknown_protocols(content: Mapping[str, Any]) -> list[str]:
    """Protocols that a data set of the grid does not have."""
    datasets = [name for name in _list(content, "datasets") if isinstance(name, str)]
    return [
        unknown("protocol", value, catalog.protocols(dataset), where=f"of data set {dataset!r} in dataset.protocol")
        for key, value in _given(content)
        for dataset in datasets
        if key == "dataset.protocol" and value not in catalog.protocols(dataset)
    ]


def _objective_values(content: Mapping[str, Any]) -> list[str]:
    """Values of objective parameters that have the wrong type, and parameters that no objective of the grid has."""
    objectives = [name for name in OBJECTIVES if name in _list(content, "objectives")]
    problems: list[str] = []
    for key, value in _given(content):
        parameter = key.removeprefix("objective.")
        if key == "objective.variant" and value not in VARIANTS:
            problems.append(unknown("variant", value, VARIANTS, where="in objective.variant"))
        if parameter == key or parameter not in known_parameters():
            continue
        holders = [name for name in objectives if parameter in OBJECTIVES[name]]
        if objectives and not holders:
            problems.append(f"{key}: none of the grid's objectives has this parameter")
        for name in holders:
            try:
                OBJECTIVES[name][parameter].parse(value)
            except ValueError as error:
                problems.append(f"{key} {error}")
    return list(dict.fromkeys(problems))


def parse(path: Path) -> dict[str, Any]:
    """The content of a grid file, not yet checked.

    Raises:
        UserError: there is no such file, or it is no TOML.
    """
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
