"""From a grid to its trials: every combination of the axes, each with all its settings resolved and an id."""

import fnmatch
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

from pydantic import ValidationError

from grid import catalog
from grid.encoders import ModelSettings
from grid.errors import UserError, several, unknown
from grid.fields import Settings
from grid.gridfile import Grid, Scalar
from grid.identity import trial_id
from grid.objectives import accepted, resolve
from grid.settings import (
    DatasetSettings,
    ObjectiveSettings,
    TrainSettings,
    TrialSettings,
)


@dataclass(frozen=True)
class Trial:
    """A cell with a seed."""

    id: str
    settings: TrialSettings

    @property
    def parent(self) -> str | None:
        """Id of the trial that this one starts from."""
        return self.settings.starts_from


@dataclass(frozen=True)
class Cell:
    """One point of all axes but the seed: what one entry of a table averages over seeds."""

    dataset: str
    recipe: str
    objective: str
    swept: tuple[tuple[str, Scalar], ...]
    trials: tuple[Trial, ...]


def expand(grid: Grid) -> list[Cell]:
    """All cells of the grid, in the order of its axes; a recipe comes after the one it starts from, named or not.

    Two cells share a trial where a swept setting is none of its objective's: `con_con` has no tau.

    Raises:
        UserError: settings that do not fit together, all of them at once.
    """
    problems: dict[str, None] = {}
    cells: list[Cell] = []
    ids: dict[tuple[Any, ...], list[Any]] = {}
    recipes = list(dict.fromkeys(name for recipe in grid.recipes for name in catalog.lineage(recipe)))
    sweeps = [tuple(zip(grid.sweep, values, strict=True)) for values in product(*grid.sweep.values())]
    for dataset, recipe_name, swept in product(grid.datasets, recipes, sweeps):
        overrides = {**grid.set, **dict(swept)}
        try:
            recipe = catalog.recipe(recipe_name)
            common = _common(dataset, recipe, overrides)
        except ValidationError as error:
            problems.update(dict.fromkeys(catalog.explain(error, prefix=f"recipe {recipe_name!r}: ")))
            continue
        for objective in grid.objectives:
            resolved = _objective(objective, overrides)
            parents = ids.get((dataset, recipe.starts_from, objective, swept), [None] * len(grid.seeds))
            trials = tuple(
                _trial(*common, recipe_name, resolved, seed, parent)
                for seed, parent in zip(grid.seeds, parents, strict=True)
            )
            ids[dataset, recipe_name, objective, swept] = [trial.id for trial in trials]
            cells.append(Cell(dataset, recipe_name, objective, swept, trials))
    if problems:
        raise several(f"grid {grid.name!r}", problems)
    return cells


def trials_of(cells: Iterable[Cell]) -> list[Trial]:
    """Every trial once, first seeds first, so that all cells of a grid fill at the same pace."""
    by_rank: dict[int, dict[str, Trial]] = {}
    for cell in cells:
        for rank, trial in enumerate(cell.trials):
            by_rank.setdefault(rank, {}).setdefault(trial.id, trial)
    return list({trial.id: trial for rank in sorted(by_rank) for trial in by_rank[rank].values()}.values())


def chain(trials: Iterable[Trial], known: Iterable[Trial]) -> list[Trial]:
    """These trials and those of `known` that they start from, parents first."""
    by_id = {trial.id: trial for trial in known}
    ordered: dict[str, Trial] = {}

    def add(trial: Trial) -> None:
        if trial.parent is not None and trial.parent in by_id:
            add(by_id[trial.parent])
        ordered.setdefault(trial.id, trial)

    for trial in trials:
        add(trial)
    return list(ordered.values())


def chains(trials: Sequence[Trial]) -> list[list[Trial]]:
    """Trials that start from one another, together and in order; a parent that is not among these is done."""
    found: dict[str, list[Trial]] = {}
    for trial in trials:
        members = found.get(trial.parent) if trial.parent else None
        if members is None:
            members = []
        members.append(trial)
        found[trial.id] = members
    return list({id(members): members for members in found.values()}.values())


def select(cells: Sequence[Cell], only: str, also: Mapping[str, Mapping[str, str]] = {}) -> list[Trial]:
    """The trials that a filter like `objective=*_cir seed=0` names.

    Args:
        also: further axes, each with its value by trial id; a trial without one is named by no pattern.

    Raises:
        UserError: an unknown axis, a condition without "=", or a filter that nothing meets.
    """
    swept = [name for name, _ in cells[0].swept]
    axes = ["dataset", "recipe", "objective", "seed", *swept, *also]
    conditions = []
    for word in only.split():
        axis, separator, pattern = word.partition("=")
        if not separator:
            raise UserError(f"--only {only!r}: {word!r} is not AXIS=PATTERN. Axes: {', '.join(axes)}.")
        if axis not in axes:
            raise UserError(unknown("axis", axis, axes, where=f"in --only {only!r}"))
        conditions.append((axis, pattern))
    chosen = {trial.id for cell in cells for trial in cell.trials if _meets(cell, trial, conditions, also)}
    if not chosen:
        raise UserError(f"--only {only!r} names none of the grid's trials.")
    return [trial for trial in trials_of(cells) if trial.id in chosen]


def _meets(cell: Cell, trial: Trial, conditions: list[tuple[str, str]], also: Mapping[str, Mapping[str, str]]) -> bool:
    values = {
        "dataset": cell.dataset,
        "recipe": cell.recipe,
        "objective": cell.objective,
        "seed": str(trial.settings.seed),
        **{name: str(value) for name, value in cell.swept},
        **{name: of[trial.id] for name, of in also.items() if trial.id in of},
    }
    return all(axis in values and fnmatch.fnmatchcase(values[axis], pattern) for axis, pattern in conditions)


def _trial(
    dataset: DatasetSettings,
    model: ModelSettings,
    train: TrainSettings,
    recipe: str,
    objective: ObjectiveSettings,
    seed: int,
    parent: str | None,
) -> Trial:
    settings = TrialSettings(
        dataset=dataset, recipe=recipe, model=model, train=train, objective=objective, seed=seed, starts_from=parent
    )
    return Trial(trial_id(settings), settings)


class _Common(Settings):
    dataset: DatasetSettings
    model: ModelSettings
    train: TrainSettings


def _common(
    dataset: str, recipe: catalog.Recipe, overrides: dict[str, Scalar]
) -> tuple[DatasetSettings, ModelSettings, TrainSettings]:
    """What all objectives and seeds of one (dataset, recipe, sweep point) have in common."""
    content: dict[str, Any] = {
        "dataset": {"name": dataset, "protocol": catalog.protocols(dataset)[0]},
        "model": recipe.model.model_dump(),
        "train": recipe.train.model_dump(),
    }
    for name, value in sorted(overrides.items(), key=lambda item: not item[0].endswith(".encoder")):
        section, *path = name.split(".")
        if section in content:
            _put(content[section], path, value)
    settings = _Common.model_validate(content)
    return settings.dataset, settings.model, settings.train


def _put(table: dict[str, Any], path: list[str], value: Scalar) -> None:
    """Set one value; choosing another encoder drops the settings of the one it replaces."""
    *parents, last = path
    for part in parents:
        table = table[part]
    if last == "encoder" and table["encoder"] != value:
        table.clear()
    table[last] = value


def _objective(name: str, overrides: dict[str, Scalar]) -> ObjectiveSettings:
    given = {key.removeprefix("objective."): value for key, value in overrides.items() if key.startswith("objective.")}
    variant = str(given.pop("variant", "paper"))
    parameters = resolve(name, variant=variant, **accepted(name, given))
    return ObjectiveSettings.model_validate({"name": name, "variant": variant, "parameters": parameters})
