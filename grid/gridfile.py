"""Grid files: what a researcher writes in a dozen lines of TOML, checked as a whole before anything runs."""

import tomllib
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, TypeVar, get_args

import tomli_w
from pydantic import BaseModel, Field, NonNegativeInt, ValidationError

from grid import catalog
from grid.catalog import explain
from grid.encoders import ModelSettings
from grid.errors import UserError, several, unknown
from grid.objectives import OBJECTIVES, known_parameters, unknown_objective
from grid.objectives.goal_matrix import GOAL
from grid.objectives.parameters import VARIANTS
from grid.resources import Reliability, Resources
from grid.settings import DatasetSettings, TrainSettings
from grid.settings_base import Settings

Scalar = bool | int | float | str
SECTIONS: dict[str, type[Settings]] = {"dataset": DatasetSettings, "model": ModelSettings, "train": TrainSettings}
"""The sections of a trial's settings that all objectives share."""

Collected = TypeVar("Collected", list[Any], dict[str, Any])


def _spelled_out(names: Any) -> Any:
    """The objectives, with the 15 names that the word "goal", alone or in a list, stands for."""
    names = [names] if isinstance(names, str) else names
    if not isinstance(names, list):
        return names
    return [name for entry in names for name in (GOAL if entry == "goal" else [entry])]


class Location(Settings):
    """The place of a data set on this machine: never part of a trial's identity."""

    root: str


class Grid(Settings):
    """A grid file's content: axes, overrides, and where and with what to run."""

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")]
    datasets: Annotated[list[str], Field(min_length=1)]
    recipes: Annotated[list[str], Field(min_length=1)]
    objectives: Annotated[list[str], Field(min_length=1)]
    seeds: Annotated[list[NonNegativeInt], Field(min_length=1)]
    set: dict[str, Scalar] = {}
    sweep: dict[str, Annotated[list[Scalar], Field(min_length=1)]] = {}
    data: dict[str, Location] = {}
    weights: dict[str, str] = {}
    tables: list[str] = []
    """Tables of the papers; `plan` says which of their numbers the grid fills. `results` knows their names."""
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
        """The folders of pretrained weights on this machine, by the weights' name."""
        return {name: Path(folder).expanduser() for name, folder in self.weights.items()}

    def root(self, dataset: str) -> Path | None:
        """The folder of this data set, if the grid names it."""
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
    if "objectives" in content:
        content = {**content, "objectives": _spelled_out(content["objectives"])}
    problems = _unknown_names(content) + _doubled(content) + _wrong_values(content)
    try:
        grid = Grid.model_validate(content)
    except ValidationError as error:
        raise several(where, explain(error) + problems) from None
    if problems:
        raise several(where, problems)
    return grid


def dotted_names() -> list[str]:
    """Every setting that a grid file may set or sweep."""
    names = [name for section, model in SECTIONS.items() for name in _fields(section, model)]
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


def _given(content: Mapping[str, Any], field: str, kind: type[Collected]) -> Collected:
    """The list or table in this field; empty for a value of another kind, which pydantic reports."""
    value = content.get(field)
    return value if isinstance(value, kind) else kind()


def _unknown_names(content: Mapping[str, Any]) -> list[str]:
    datasets, recipes = sorted({*catalog.names("datasets"), *_given(content, "data", dict)}), catalog.names("recipes")
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
    settings = dotted_names()
    for table in ("set", "sweep"):
        wrong = [name for name in _given(content, table, dict) if name not in settings]
        problems += [unknown("setting", name, settings, where=f"in [{table}]") for name in wrong]
    return problems


def _doubled(content: Mapping[str, Any]) -> list[str]:
    """Values that an axis has more than once."""
    sweep = _given(content, "sweep", dict)
    axes = {axis: _given(content, axis, list) for axis in ("datasets", "recipes", "objectives", "seeds", "tables")}
    axes |= {f"sweep {name!r}": _given(sweep, name, list) for name in sweep}
    return [
        f"{axis}: {value} stands there more than once"
        for axis, values in axes.items()
        for value in sorted({str(value) for value in values if values.count(value) > 1})
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
