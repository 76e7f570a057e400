"""The sections of a trial's settings that all objectives share, each made of a recipe's content and a grid's values."""

from collections.abc import Mapping
from typing import Any

from goalgrid.grid import catalog
from goalgrid.grid.settings import DatasetSettings, TrainSettings
from goalgrid.grid.settings.base import CHOICES, Settings
from goalgrid.grid.settings.model import ModelSettings

SECTIONS: dict[str, type[Settings]] = {"dataset": DatasetSettings, "model": ModelSettings, "train": TrainSettings}


def of_section(section: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of a section, of all values by dotted name."""
    prefix = f"{section}."
    return {name.removeprefix(prefix): value for name, value in given.items() if name.startswith(prefix)}


def section_from(section: str, dataset: str, recipe: str, overrides: Mapping[str, Any]) -> Settings:
    """Return a section with these values, the choice of an encoder or scorer first; or pydantic's error."""
    content: dict[str, Any] = {"name": dataset, "protocol": catalog.protocols(dataset)[0]}
    if section != "dataset":
        content = catalog.content(recipe)[section]
    for name, value in sorted(overrides.items(), key=lambda item: item[0].rpartition(".")[2] not in CHOICES):
        put(content, name, value)
    return SECTIONS[section].model_validate(content)


def put(table: dict[str, Any], name: str, value: Any) -> None:
    """Set a value by its dotted name; another encoder or scorer drops the settings of the one that it replaces."""
    *parents, last = name.split(".")
    for part in parents:
        table = table.setdefault(part, {})
    if last in CHOICES and table.get(last) != value:
        table.clear()
    table[last] = value
