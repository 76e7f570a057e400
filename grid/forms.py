"""The forms in which a grid file may be written, and the single form in which the program reads it."""

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple, Self

from goalgrid.grid import catalog
from goalgrid.grid.errors import UserError
from goalgrid.grid.objectives.goal_matrix import GOAL

Scalar = bool | int | float | str
TABLES = ("recipe", "set", "sweep", "data", "weights", "checkpoints", "resources", "reliability", "budget")
LISTS = ("datasets", "recipes", "objectives", "seeds", "tables", "trackers", "uses", "exclude")
"""Fields that hold lists; a single value stands for a list of one."""
KINDS: dict[str, type] = {"name": str, **dict.fromkeys(LISTS, list), **dict.fromkeys(TABLES, dict)}
"""All fields of a grid file, with the kind of their values."""
RANGES = {"log": 2, "linear": 3}
"""How the values of a range are spaced, with the significant digits that they are rounded to."""


class Content(NamedTuple):
    """A grid file's content in one form. Whether its names and values are right is not yet checked.

    Args:
        where: the grid, for messages.
        fields: lists, tables and a name, each of the field's kind; and unknown keys.
        misfits: values of another kind than their field's, which the model of the grid reports.
    """

    where: str
    fields: dict[str, Any]
    misfits: dict[str, Any]

    def values(self, field: str) -> list[Any]:
        """The list in this field; empty where there is none."""
        return list(self.fields.get(field, ()))

    def table(self, field: str) -> dict[str, Any]:
        """The table in this field; empty where there is none."""
        return dict(self.fields.get(field, ()))

    def names(self, axis: str) -> list[str]:
        """The texts among the values of an axis."""
        return [name for name in self.values(axis) if isinstance(name, str)]

    def swept(self) -> list[tuple[str, Any]]:
        """Every swept value with its setting's name."""
        lists = {name: values for name, values in self.table("sweep").items() if isinstance(values, list)}
        return [(name, value) for name, values in lists.items() for value in values]

    def put(self, **fields: Any) -> Self:
        """The content with these values in place of its own."""
        return self._replace(fields=self.fields | fields)


def normal(table: Mapping[str, Any], where: str) -> Content:
    """What a grid file says, with lists for single values, dotted names in [set] and [sweep], and values for ranges.

    Args:
        where: the grid, for messages.

    Raises:
        UserError: a setting stands there twice, with a dotted name and in a table; or a range is wrong.
    """
    single = (bool, int, float, str, dict)
    fields: dict[str, Any] = {
        key: [value] if key in LISTS and isinstance(value, single) else value for key, value in table.items()
    }
    misfits = {key: fields.pop(key) for key in table if not isinstance(fields[key], KINDS.get(key, object))}
    if "objectives" in fields:
        spelled_out = (GOAL if name == "goal" else [name] for name in fields["objectives"])
        fields["objectives"] = [name for names in spelled_out for name in names]
    for field in ("set", "sweep"):
        pairs = list(_dotted(fields.get(field, {}), where, swept=field == "sweep"))
        if twice := [name for name, count in Counter(name for name, _ in pairs).items() if count > 1]:
            raise UserError(f"{where}: {twice[0]} stands in [{field}] more than once")
        fields[field] = dict(pairs)
    return Content(where, fields, misfits)


def _dotted(table: Mapping[str, Any], where: str, prefix: str = "", *, swept: bool) -> Iterator[tuple[str, Any]]:
    """The values of a table and of the tables in it, by dotted names; of swept ones, a list for a range and a value."""
    for key, value in table.items():
        name = prefix + key
        if swept and isinstance(value, dict) and RANGES.keys() & value.keys():
            yield name, _range(value, f"{where}: {name} in [sweep]")
        elif isinstance(value, dict):
            yield from _dotted(value, where, f"{name}.", swept=swept)
        else:
            yield name, [value] if swept and isinstance(value, Scalar) else value


def _range(table: Mapping[str, Any], where: str) -> list[int] | list[float]:
    """The values of `{log = [first, last, count]}` or `{linear = [first, last, count]}`.

    Raises:
        UserError: it is no such table.
    """
    form = "a range is { log = [first, last, count] } or { linear = [first, last, count] }"
    (kind, ends), *others = table.items()
    numbers = isinstance(ends, list) and all(type(end) in (int, float) for end in ends)
    if others or not numbers or len(ends) != 3 or type(ends[2]) is not int:
        raise UserError(f"{where}: {dict(table)} is no range; {form}, e.g. {{ log = [1e-4, 1e-3, 5] }}.")
    first, last, count = ends
    if count < 2 or first == last or (kind == "log" and min(first, last) <= 0):
        needs = "two values or more, from one number to another" + ", both above 0" * (kind == "log")
        raise UserError(f"{where}: {kind} = {ends} should give {needs}.")
    return spaced(kind, first, last, count)


def spaced(kind: str, first: float, last: float, count: int) -> list[int] | list[float]:
    """So many values between two ends, rounded as a person writes them: to two digits on a log scale, else to three.

    >>> spaced("log", 1e-4, 1e-3, 5), spaced("log", 32, 256, 4), spaced("linear", 0, 1, 5)
    ([0.0001, 0.00018, 0.00032, 0.00056, 0.001], [32, 64, 128, 256], [0.0, 0.25, 0.5, 0.75, 1.0])

    Whole numbers between whole ends stay as they are. There are more digits where two values would be equal.
    """
    shares = [place / (count - 1) for place in range(count)]
    exact = [first * (last / first) ** share if kind == "log" else first + (last - first) * share for share in shares]
    whole = isinstance(first, int) and isinstance(last, int)

    def written(value: float, digits: int) -> float:
        return round(value) if whole and abs(value - round(value)) < 1e-9 else float(f"{value:.{digits}g}")

    found = list[float]()
    for digits in range(RANGES[kind], 18):
        found = [first, *(written(value, digits) for value in exact[1:-1]), last]
        if len(set(found)) == count:
            break
    if whole and all(float(value).is_integer() for value in found):
        return [int(value) for value in found]
    return [float(value) for value in found]


def extended(base: Content, content: Content) -> Content:
    """The content of a grid file over that of the grid that it extends: tables are merged, lists and values replaced.

    What it sets is no longer swept, and the reverse. The name is its own, and so is a recipe that extends another.
    """
    recipes = content.table("recipe").items()
    anew = {name for name, recipe in recipes if isinstance(recipe, dict) and "extends" in recipe}
    replaced = {"recipe": anew, "set": content.table("sweep"), "sweep": content.table("set")}
    below = {field: value for field, value in base.fields.items() if field not in {"name", *content.misfits}}
    for field, names in replaced.items():
        below[field] = {name: value for name, value in base.table(field).items() if name not in names}
    misfits = {field: value for field, value in base.misfits.items() if field not in content.fields}
    return Content(content.where, catalog.over(below, content.fields), misfits | content.misfits)
