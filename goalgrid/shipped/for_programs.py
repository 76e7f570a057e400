"""What is shipped, for programs: grids, recipes, objectives and data sets as JSON has them."""

from dataclasses import asdict
from typing import Any

from goalgrid.grid import catalog
from goalgrid.grid.errors import UserError
from goalgrid.grid.gridfile import load
from goalgrid.grid.objectives import CATALOGUE, unknown_objective
from goalgrid.grid.objectives.goal_matrix import GOAL, of_a_loss

JSON_GRIDS = "Print JSON, for programs: name, datasets, recipes, objectives, seeds and sweep of each grid."
JSON_RECIPES = (
    "Print JSON, for programs: name, reads, description, gpu, starts_from, ensemble; with NAME also words, reading, "
    "settings."
)
JSON_OBJECTIVES = (
    "Print JSON, for programs: name, family, known_as, source, of_a_loss; with NAME also formula, parameters."
)
JSON_TABLES = (
    "Print JSON, for programs: table, block, label, origin, grids, recipes, objectives, quoted, why and differs of "
    "each row."
)
JSON_DATASETS = "Print JSON, for programs: name, description, protocols, embedded and splits of each data set."


def grids() -> list[dict[str, Any]]:
    """The axes of every shipped grid."""
    axes = {"name", "datasets", "recipes", "objectives", "seeds", "sweep"}
    return [load(name).model_dump(include=axes) for name in catalog.names("presets")]


def recipes() -> list[dict[str, Any]]:
    """Every recipe, without its settings."""
    return [_recipe(name) for name in catalog.names("recipes")]


def recipe(name: str) -> dict[str, Any]:
    """A recipe with its settings by dotted name."""
    entry = catalog.recipe(name)
    return {**_recipe(name), "words": entry.words, "reading": entry.reading, "settings": catalog.settings(name)}


def objectives() -> list[dict[str, Any]]:
    """Every objective, without its parameters."""
    return [_objective(name) for name in CATALOGUE]


def objective(name: str) -> dict[str, Any]:
    """An objective with its equation and parameters.

    Raises:
        UserError: no objective has this name.
    """
    if name not in CATALOGUE:
        raise UserError(unknown_objective(name))
    keys = ("meaning", "paper", "released", "choices", "only_with")
    parameters = {key: asdict(parameter) for key, parameter in CATALOGUE[name].parameters.items()}
    shown = {key: {field: parameter[field] for field in keys} for key, parameter in parameters.items()}
    return {**_objective(name), "formula": CATALOGUE[name].formula, "parameters": shown}


def datasets() -> list[dict[str, Any]]:
    """Every data set that is known by name."""
    keys = {"description", "protocols", "embedded", "splits"}
    return [{"name": name, **catalog.dataset(name).model_dump(include=keys)} for name in catalog.names("datasets")]


def _recipe(name: str) -> dict[str, Any]:
    fields = {"description", "gpu", "starts_from", "ensemble"}
    return {"name": name, "reads": catalog.reads(name), **catalog.recipe(name).model_dump(include=fields)}


def _objective(name: str) -> dict[str, Any]:
    entry = CATALOGUE[name]
    facts = {"family": entry.family, "known_as": entry.known_as, "source": entry.source}
    return {"name": name, **facts, "of_a_loss": of_a_loss(name) if name in GOAL else None}
