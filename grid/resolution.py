"""The settings of a grid's cells, section by section: what cells have in common is validated and written down once."""

from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from pydantic import ValidationError

from grid import catalog
from grid.encoders import ModelSettings
from grid.gridfile import Grid, Scalar
from grid.identity import canonical_json
from grid.objectives import accepted, resolve
from grid.settings import DatasetSettings, ObjectiveSettings, TrainSettings
from grid.settings_base import Settings

Point = tuple[tuple[str, Scalar], ...]
"""A value of every swept setting, with its dotted name."""

SectionSettings = TypeVar("SectionSettings", bound=Settings)


@dataclass(frozen=True, slots=True)
class Section(Generic[SectionSettings]):
    """One section of a trial's settings, and how it stands in what the trial's id is a hash of."""

    settings: SectionSettings
    text: str

    @classmethod
    def of(cls, settings: SectionSettings) -> "Section[SectionSettings]":
        return cls(settings, canonical_json(settings))


@dataclass(frozen=True, slots=True)
class Common:
    """What all objectives and seeds of one (dataset, recipe, sweep point) have in common."""

    dataset: Section[DatasetSettings]
    model: Section[ModelSettings]
    train: Section[TrainSettings]


class Resolver:
    """The sections of one grid, each validated once for every choice of the swept values that are its own."""

    def __init__(self, grid: Grid) -> None:
        self.problems: dict[str, None] = {}
        """What does not fit together, in the order in which it was found."""
        self._set = grid.set
        self._own = {
            section: [place for place, name in enumerate(grid.sweep) if name.startswith(f"{section}.")]
            for section in (*_COMMON, "objective")
        }
        """Places of each section's values in a point."""
        self._known: dict[tuple[Any, ...], Any] = {}

    def common(self, dataset: str, recipe: str, point: Point) -> Common | None:
        """All sections but the objective; None where they do not fit together, which `problems` says then."""
        sections = [self._section(name, dataset, recipe, point) for name in _COMMON]
        return Common(*(section for section in sections if section)) if all(sections) else None

    def objective(self, name: str, point: Point) -> Section[ObjectiveSettings]:
        """An objective with those values that it has a parameter for.

        Raises:
            UserError: a value is none of its parameter.
        """
        own = tuple(point[place] for place in self._own["objective"])
        key = "objective", name, own
        if key not in self._known:
            self._known[key] = Section.of(_objective(name, self._overrides("objective", own)))
        return self._known[key]

    def _section(self, section: str, dataset: str, recipe: str, point: Point) -> Section[Any] | None:
        own = tuple(point[place] for place in self._own[section])
        key = section, dataset, recipe, own
        if key not in self._known:
            content = _content(section, dataset, recipe)
            overrides = self._overrides(section, own)
            for name, value in sorted(overrides.items(), key=lambda item: not item[0].endswith(".encoder")):
                _put(content, name.split("."), value)
            try:
                self._known[key] = Section.of(_COMMON[section].model_validate(content))
            except ValidationError as error:
                self.problems.update(dict.fromkeys(catalog.explain(error, prefix=f"recipe {recipe!r}: {section}.")))
                self._known[key] = None
        return self._known[key]

    def _overrides(self, section: str, own: Point) -> dict[str, Scalar]:
        """What is set, then what is swept, by name within the section."""
        prefix = f"{section}."
        return {
            name.removeprefix(prefix): value
            for name, value in (self._set | dict(own)).items()
            if name.startswith(prefix)
        }


_COMMON: dict[str, type[Settings]] = {"dataset": DatasetSettings, "model": ModelSettings, "train": TrainSettings}
"""The sections that all objectives share, in the order of `Common`."""


def _content(section: str, dataset: str, recipe: str) -> dict[str, Any]:
    """A section before any value is set."""
    if section == "dataset":
        return {"name": dataset, "protocol": catalog.protocols(dataset)[0]}
    content: dict[str, Any] = getattr(catalog.recipe(recipe), section).model_dump()
    return content


def _objective(name: str, given: dict[str, Scalar]) -> ObjectiveSettings:
    variant = str(given.pop("variant", "paper"))
    parameters = resolve(name, variant=variant, **accepted(name, given))
    return ObjectiveSettings.model_validate({"name": name, "variant": variant, "parameters": parameters})


def _put(table: dict[str, Any], path: list[str], value: Scalar) -> None:
    """Set one value; choosing another encoder drops the settings of the one it replaces."""
    *parents, last = path
    for part in parents:
        table = table[part]
    if last == "encoder" and table["encoder"] != value:
        table.clear()
    table[last] = value
