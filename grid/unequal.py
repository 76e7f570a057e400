"""Settings in which the cells of a data set differ though no axis says so: a grid sets them for some cells alone."""

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
    """A setting that a training reads."""

    name: str
    value: Any
    default: bool
    """Whether the value is its recipe's, or its objective's default."""


_Reading = dict[str, _Read]
"""By the dotted name with the encoders and scorers on the way: the layers of another encoder are another setting."""


def unequal(cells: Sequence[Cell]) -> list[Values]:
    """Return for each cell its values of the settings in which the cells of its data set differ.

    Left out are axes, chosen settings, and what comes with the recipe, the objective, or another encoder or scorer.
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
    """What decides on the settings of a cell that others of its data set may share: few cells differ in it."""
    shared = cell.trials[0].shared
    sections = shared.dataset, shared.model, shared.train, shared.objective
    return shared.recipe, bool(cell.trials[0].epochs), *map(id, sections)


def _differing(readings: Sequence[_Reading], named: Collection[str]) -> list[Values]:
    """For each reading its values of the settings in which they differ, beyond those that are named elsewhere."""
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
    """What the training of a cell reads; of a cell that trains nothing, that it has no epochs."""
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
    """The variant, and the parameters that the objective reads."""
    declared, defaults = objective.entry.parameters, objective.entry.defaults(objective.variant)
    values = {"variant": _Read("objective.variant", objective.variant, default=False)}
    for name, value in objective.parameters.items():
        if name in declared and declared[name].read(objective.parameters):
            values[name] = _Read(f"objective.{name}", value, value == defaults[name])
    return {part.name: part for part in values.values()}


def _values(settings: Settings, prefix: str, reader: Reader) -> Iterator[tuple[str, Any]]:
    """The settings that a training reads, by keys of `_Reading`."""
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
