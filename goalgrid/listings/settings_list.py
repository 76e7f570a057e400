"""List all settings of a grid file, from the models that validate it: type, default, unit, meaning, when it is read."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pydantic import BaseModel

from goalgrid.grid.cross_checks import fields_in
from goalgrid.grid.errors import UserError, unknown
from goalgrid.grid.evaluations import Evaluate
from goalgrid.grid.fair import Fair
from goalgrid.grid.gridfile import Location
from goalgrid.grid.groups import grouped
from goalgrid.grid.notes import Notes
from goalgrid.grid.objectives import OURS
from goalgrid.grid.objectives.goal_matrix import PAIR_WEIGHTS, TRIPLET_WEIGHTS
from goalgrid.grid.resources import Budget, Reliability, Resources
from goalgrid.grid.sections import SECTIONS
from goalgrid.grid.select import Select
from goalgrid.grid.settings import ObjectiveSettings
from goalgrid.grid.settings.base import CHOICES, ReadWhere, Unit
from goalgrid.grid.syntax import setting_text
from goalgrid.grid.validation_messages import chosen_by

TABLES: dict[str, type[BaseModel]] = {
    "data.NAME": Location,
    "resources": Resources,
    "reliability": Reliability,
    "budget": Budget,
    "select": Select,
    "evaluate": Evaluate,
    "fair": Fair,
    "notes": Notes,
}
"""Tables of a grid file other than [set] and [sweep], with the models that validate them."""
SWEEPABLE = "[set] or [sweep]"
TYPES = {"number": "float", "object": "table", "array": "list"}
BOUNDS = {"minimum": "from", "exclusiveMinimum": "above", "maximum": "up to", "exclusiveMaximum": "below"}


@dataclass(frozen=True)
class Setting:
    """A setting of a grid file.

    Args:
        place: the table of the grid file that contains it.
        of: encoders, scorers or objectives that have it; empty: all.
        default: the value without a recipe; None if it is `required`.
        released: for parameters of objectives, the default under the released variant.
        allowed: allowed values and bounds, as text.
        read_with: conditions under which training reads it; empty: always.
    """

    name: str
    place: str
    of: tuple[str, ...]
    type: str
    default: Any
    required: bool
    released: Any
    unit: str
    meaning: str
    allowed: str
    read_with: tuple[str, ...]

    @property
    def default_text(self) -> str:
        """The default as text, followed by that of the released variant if it differs."""
        if self.required:
            return {"dataset": "the data set's", "data": "required", "select": "required"}.get(
                self.name.split(".")[0], "the recipe's"
            )
        other = f" (released: {setting_text(self.released)})" if self.released != self.default else ""
        return setting_text(self.default) + other


def settings() -> list[Setting]:
    """Return every setting, in the order of the models."""
    every = [setting for section, model in SECTIONS.items() for setting in _of_model(section, model, SWEEPABLE)]
    every = [setting for setting in every if setting.name != "dataset.name"]
    every += [s for s in _of_model("objective", ObjectiveSettings, SWEEPABLE) if s.name == "objective.variant"]
    every += _of_objectives()
    for table, model in TABLES.items():
        every += _of_model(table, model, f"[{table}]")
    return _together(every)


def named(name: str) -> list[Setting]:
    """Return the setting of this name, or all in the group of this name; raise UserError if there is none."""
    every = settings()
    chosen = [s for s in every if s.name == name] or [s for s in every if s.name.startswith(f"{name.rstrip('.')}.")]
    if not chosen:
        known = list(dict.fromkeys(setting.name for setting in every))
        raise UserError(
            unknown("setting", name, known, hint="A prefix shows several settings, e.g. train or model.image.")
        )
    return chosen


def lines(chosen: Sequence[Setting]) -> Iterator[str]:
    """Yield one line per setting or, for a single name, all details."""
    if len({setting.name for setting in chosen}) == 1:
        for setting in chosen:
            yield from (*_details(setting), "")
        return
    often = Counter(setting.name for setting in chosen)
    names, defaults = [setting.name for setting in chosen], [setting.default_text for setting in chosen]
    for setting, name, default in zip(chosen, names, defaults, strict=True):
        unit = f" [{setting.unit}]" if setting.unit else ""
        of = f" (of {', '.join(setting.of)})" if often[name] > 1 and setting.of else ""
        yield f"{name:{max(map(len, names))}}  {default:{max(map(len, defaults))}}  {setting.meaning}{unit}{of}"


def _of_model(prefix: str, model: type[BaseModel], place: str) -> Iterator[Setting]:
    fields = list(fields_in(prefix, model))
    schemas = {owner: owner.model_json_schema()["properties"] for owner in {owner for _, owner in fields}}
    for dotted, owner in fields:
        name = dotted.rpartition(".")[2]
        field, schema = owner.model_fields[name], schemas[owner][name]
        required, marks = field.is_required(), field.metadata
        yield Setting(
            name=dotted, place=place, of=chosen_by(owner), type=_type(schema), required=required,
            default=None if required else schema["default"], released=None if required else schema["default"],
            unit=next((mark.words for mark in marks if isinstance(mark, Unit)), ""),
            meaning=field.description or "",
            allowed=_allowed(schema),
            read_with=tuple(mark.words for mark in marks if isinstance(mark, ReadWhere)),
        )  # fmt: skip


def _of_objectives() -> Iterator[Setting]:
    """Yield the parameters of objectives as settings; a name with several definitions gives several settings."""
    holders = grouped(
        ((name, replace(parameter, silent=())), objective)
        for objective, entry in OURS.items()
        for name, parameter in entry.parameters.items()
    )
    for (name, parameter), objectives in sorted(holders.items(), key=lambda item: item[0][0]):
        other = [f"objective.{parameter.only_with[0]} = {parameter.only_with[1]}"] if parameter.only_with else []
        kind = type(parameter.default if parameter.default is not None else parameter.released)
        kinds = {bool: "boolean", int: "integer", float: "float", str: "string"}
        yield Setting(
            name=f"objective.{name}",
            place=SWEEPABLE,
            of=tuple(_patterns(objectives)),
            type=kinds[kind] + " or none" * parameter.optional,
            default=parameter.default,
            required=False,
            released=parameter.released,
            unit="",
            meaning=parameter.meaning,
            allowed=", ".join(parameter.choices) or ("from 1" if kind is int else ""),
            read_with=tuple(other),
        )


def _patterns(names: Sequence[str]) -> list[str]:
    """Abbreviate whole rows and columns of GOAL's matrix by patterns; return an empty list for all objectives."""
    unmatched, patterns = set(names), []
    if len(names) == len(OURS):
        return []
    columns = {f"*_{triplet}": [f"{pair}_{triplet}" for pair in PAIR_WEIGHTS] for triplet in TRIPLET_WEIGHTS}
    rows = {f"{pair}_*": [f"{pair}_{triplet}" for triplet in TRIPLET_WEIGHTS] for pair in PAIR_WEIGHTS}
    whole = {"goal": [name for column in columns.values() for name in column]}
    for pattern, members in (whole | columns | rows).items():
        if unmatched.intersection(members) and set(names).issuperset(members):
            patterns.append(pattern)
            unmatched.difference_update(members)
    return [*patterns, *(name for name in names if name in unmatched)]


def _together(settings: Iterable[Setting]) -> list[Setting]:
    """Merge settings that differ only in `of`; if all encoders have a setting, its `of` becomes empty."""
    merged: dict[str, Setting] = {}
    every: dict[str, set[str]] = {}
    for setting in settings:
        every.setdefault(setting.name.rpartition(".")[0], set()).update(setting.of)
        choice = setting.name.rpartition(".")[2] in CHOICES
        key = setting.name if choice else repr(replace(setting, of=()))
        if before := merged.get(key):
            allowed = f"{before.allowed}, {setting.allowed}" if choice else before.allowed
            setting = replace(before, of=(*before.of, *setting.of), allowed=allowed)
        merged[key] = setting
    return [
        replace(setting, of=()) if set(setting.of) == every[setting.name.rpartition(".")[0]] else setting
        for setting in merged.values()
    ]


def _type(schema: Mapping[str, Any]) -> str:
    if "anyOf" in schema:
        return " or ".join("none" if kind == "null" else kind for kind in dict.fromkeys(map(_type, schema["anyOf"])))
    kind = schema.get("type", "string")
    return TYPES.get(kind, kind)


def _allowed(schema: Mapping[str, Any]) -> str:
    if "anyOf" in schema:
        return "; ".join(filter(None, map(_allowed, schema["anyOf"])))
    if "enum" in schema or "const" in schema:
        return ", ".join(map(str, schema.get("enum", [schema.get("const")])))
    return ", ".join(f"{word} {schema[key]}" for key, word in BOUNDS.items() if key in schema)


def _details(setting: Setting) -> Iterator[str]:
    details = {
        "in": setting.place,
        "of": ", ".join(setting.of),
        "type": setting.type,
        "allowed": setting.allowed,
        "default": setting.default_text,
        "unit": setting.unit,
        "read with": " and ".join(setting.read_with),
    }
    yield setting.name
    yield f"  {setting.meaning}"
    yield from (f"  {key:9}  {value}" for key, value in details.items() if value)
