"""Build the sections of a trial's settings, except the objective, from a recipe's content and a grid's values."""

from collections.abc import Mapping
from typing import Any

from goalgrid.grid import catalog
from goalgrid.grid.catalog import Catalog
from goalgrid.grid.settings import DatasetSettings, TrainSettings
from goalgrid.grid.settings.base import CALL, CHOICES, Settings, remaining_fields
from goalgrid.grid.settings.model import ModelSettings

SECTIONS: dict[str, type[Settings]] = {"dataset": DatasetSettings, "model": ModelSettings, "train": TrainSettings}


def of_section(section: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """Select the values of a section from values by dotted name, and strip the section's prefix."""
    prefix = f"{section}."
    return {name.removeprefix(prefix): value for name, value in given.items() if name.startswith(prefix)}


def section_from(section: str, dataset: str, recipe: str, overrides: Mapping[str, Any], known: Catalog) -> Settings:
    """Build a section from a recipe and overrides; raises pydantic's ValidationError.

    Choices of encoders and scorers are applied first, because they reset other settings.
    """
    content: dict[str, Any] = {"name": dataset, "protocol": catalog.protocols(dataset)[0]}
    if section != "dataset":
        content = known.content(recipe)[section]
    for name, value in sorted(overrides.items(), key=lambda item: _rank(item[0].rpartition(".")[2])):
        put(content, name, value)
    return known.validated(SECTIONS[section], content)


def _rank(field: str) -> int:
    """A sort key that puts fields first that reset others of their table."""
    return 0 if field in CHOICES else 1 if field == CALL else 2


def put(table: dict[str, Any], name: str, value: Any) -> None:
    """Set a value by its dotted name; another encoder, scorer or call resets the settings of the old one."""
    *parents, last = name.split(".")
    for part in parents:
        table = table.setdefault(part, {})
    remaining = remaining_fields(table, {last: value})
    for dropped in table.keys() - remaining.keys():
        del table[dropped]
    table[last] = value
