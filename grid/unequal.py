"""Find settings that differ between the cells of a data set without being an axis, e.g. set by [[where]]."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from goalgrid.grid import catalog
from goalgrid.grid.expansion import Cell
from goalgrid.grid.groups import grouped
from goalgrid.grid.resolution import reader_of
from goalgrid.grid.settings import DatasetSettings, ObjectiveSettings, Reader
from goalgrid.grid.settings.base import CHOICES, NoIdentity, ReadWhere, Settings

Values = Mapping[str, Any]
"""Values of settings by dotted name."""


class _Read(NamedTuple):
    """A setting that has an effect on a trial."""

    name: str
    value: Any
    default: bool
    """Whether the value is the default of its recipe or objective."""


_Reading = dict[str, _Read]
"""Settings by dotted name with the chosen encoders and scorers, so that `layers` of two encoders are not compared."""


def unequal(cells: Sequence[Cell]) -> list[Values]:
    """Return, for each cell, its values of the settings that differ between the cells of its data set.

    Axes, settings chosen by [select], and differences due to the recipe, objective, encoder or scorer are left out.
    """
    values_of: list[Values] = [{} for _ in cells]
    named = {name for cell in cells for name, _ in cell.swept}
    named |= {name for cell in cells for choice in cell.choices for tried in choice.tried for name, _ in tried.point}
    trained = ((cell.dataset, place) for place, cell in enumerate(cells) if cell.trials and not cell.published)
    for places in grouped(trained).values():
        kinds = grouped((_kind(cells[place]), place) for place in places)
        readings = [_reading(cells[members[0]]) for members in kinds.values()]
        for members, values in zip(kinds.values(), _differing(readings, named), strict=True):
            for place in members:
                values_of[place] = values
    return values_of


def _kind(cell: Cell) -> tuple[Any, ...]:
    """A key that is equal for cells with equal settings; a data set has few different keys."""
    shared = cell.trials[0].shared
    sections = shared.dataset, shared.model, shared.train, shared.objective
    return shared.recipe, bool(cell.trials[0].epochs), *map(id, sections)


def _differing(readings: Sequence[_Reading], named: Collection[str]) -> list[Values]:
    """For each reading, its values of the settings that differ between readings, except those in `named`."""
    values_of: list[dict[str, Any]] = [{} for _ in readings]
    for key, parts in grouped(pair for reading in readings for pair in reading.items()).items():
        name, value, _ = parts[0]
        if name in named or all(part.default for part in parts) or all(part.value == value for part in parts):
            continue
        for place, reading in enumerate(readings):
            if part := reading.get(key):
                values_of[place][name] = part.value
    return list(values_of)


def _reading(cell: Cell) -> _Reading:
    """The settings that have an effect on a cell; for a cell without training, its zero epochs."""
    shared, trains = cell.trials[0].shared, cell.trials[0].epochs > 0
    reader, reading = reader_of(shared.model, shared.objective), _of_objective(shared.objective)
    whole = DatasetSettings.model_validate({"name": cell.dataset, "protocol": catalog.protocols(cell.dataset)[0]})
    usual: dict[str, Settings] = {"dataset": whole, "model": cell.origin.model, "train": cell.origin.train}
    for section, unchanged in usual.items():
        settings, defaults = getattr(shared, section), dict(_values(unchanged, section, reader))
        for key, value in _values(settings, section, reader):
            if trains or section != "train" or (key == "train.epochs" and not shared.members):
                name = ".".join(part.partition("=")[0] for part in key.split("."))
                reading[key] = _Read(name, value, key in defaults and defaults[key] == value)
    return reading


def _of_objective(objective: ObjectiveSettings) -> _Reading:
    """The variant, and the parameters that have an effect on the objective."""
    declared, defaults = objective.entry.parameters, objective.entry.defaults(objective.variant)
    values = {"variant": _Read("objective.variant", objective.variant, default=False)}
    for name, value in objective.parameters.items():
        if name in declared and declared[name].read(objective.parameters):
            values[name] = _Read(f"objective.{name}", value, value == defaults[name])
    return {part.name: part for part in values.values()}


def _values(settings: Settings, prefix: str, reader: Reader) -> Iterator[tuple[str, Any]]:
    """The settings that have an effect on a trial, by keys of `_Reading`."""
    for name, field in type(settings).model_fields.items():
        value, marks = getattr(settings, name), field.metadata
        met = all(mark.condition(settings, reader) for mark in marks if isinstance(mark, ReadWhere))
        if NoIdentity in marks or not met:
            continue
        if isinstance(value, Settings):
            choice = next(((kind, getattr(value, kind)) for kind in CHOICES if hasattr(value, kind)), None)
            if choice:
                yield f"{prefix}.{name}.{choice[0]}", choice[1]
            below = f"={choice[1]}".replace(".", "") if choice else ""
            yield from _values(value, f"{prefix}.{name}{below}", reader)
        else:
            yield f"{prefix}.{name}", value
