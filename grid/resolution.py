"""The settings of a grid's cells, section by section: a section that cells share is validated and written once."""

from typing import Any, Generic, NamedTuple, TypeVar

from pydantic import ValidationError

from grid import catalog
from grid.encoders import ModelSettings
from grid.gridfile import SECTIONS, Grid, Scalar
from grid.identity import canonical_json
from grid.objectives import accepted, resolve
from grid.settings import DatasetSettings, ObjectiveSettings, TrainSettings
from grid.settings_base import Settings

Point = tuple[tuple[str, Scalar], ...]
"""A value of every swept setting, with its dotted name."""

SectionSettings = TypeVar("SectionSettings", bound=Settings)


class Section(NamedTuple, Generic[SectionSettings]):
    """A section of a trial's settings, and its text in the JSON that the trial's id is a hash of."""

    settings: SectionSettings
    text: str


class Common(NamedTuple):
    """The sections that all objectives and seeds of a (dataset, recipe, sweep point) share."""

    dataset: Section[DatasetSettings]
    model: Section[ModelSettings]
    train: Section[TrainSettings]


class Resolver:
    """The sections of a grid, each validated once for every choice of the swept values that belong to it."""

    def __init__(self, grid: Grid) -> None:
        self.problems: dict[str, None] = {}
        """Settings that do not fit together, in the order in which they were found."""
        self._set = grid.set
        self._known: dict[tuple[Any, ...], Any] = {}

    def common(self, dataset: str, recipe: str, point: Point) -> Common | None:
        """All sections but the objective; None where settings do not fit together, which `problems` says then."""
        sections = [self._section(name, dataset, recipe, point) for name in Common._fields]
        return Common(*sections) if all(sections) else None

    def objective(self, name: str, point: Point) -> Section[ObjectiveSettings]:
        """An objective with the values that it has a parameter for.

        Raises:
            UserError: a value does not fit its parameter.
        """
        overrides = self._overrides("objective", point)
        key = "objective", name, *overrides.items()
        if key not in self._known:
            variant = str(overrides.pop("variant", "paper"))
            parameters = resolve(name, variant=variant, **accepted(name, overrides))
            content = {"name": name, "variant": variant, "parameters": parameters}
            settings = ObjectiveSettings.model_validate(content)
            self._known[key] = Section(settings, canonical_json(settings))
        return self._known[key]

    def _section(self, section: str, dataset: str, recipe: str, point: Point) -> Any:
        overrides = self._overrides(section, point)
        key = section, dataset, recipe, *overrides.items()
        if key not in self._known:
            content = _content(section, dataset, recipe)
            for name, value in sorted(overrides.items(), key=lambda item: not item[0].endswith(".encoder")):
                _put(content, name.split("."), value)
            try:
                settings = SECTIONS[section].model_validate(content)
                self._known[key] = Section(settings, canonical_json(settings))
            except ValidationError as error:
                self.problems.update(
                    dict.fromkeys(catalog.explain(error, SECTIONS[section], f"recipe {recipe!r}: {section}."))
                )
                self._known[key] = None
        return self._known[key]

    def _overrides(self, section: str, point: Point) -> dict[str, Scalar]:
        """The values that are set, then the swept values, by name within the section."""
        given, prefix = self._set | dict(point), f"{section}."
        return {name.removeprefix(prefix): value for name, value in given.items() if name.startswith(prefix)}


def _content(section: str, dataset: str, recipe: str) -> dict[str, Any]:
    """A section before any value is set."""
    if section == "dataset":
        return {"name": dataset, "protocol": catalog.protocols(dataset)[0]}
    content: dict[str, Any] = getattr(catalog.recipe(recipe), section).model_dump()
    return content


def _put(table: dict[str, Any], path: list[str], value: Scalar) -> None:
    """Set a value; choosing another encoder drops the settings of the encoder that it replaces."""
    *parents, last = path
    for part in parents:
        table = table[part]
    if last == "encoder" and table["encoder"] != value:
        table.clear()
    table[last] = value
