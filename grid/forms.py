"""The forms in which a grid file may be written: single values, dotted names, ranges, and a grid that it extends."""

from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from goalgrid.grid import catalog
from goalgrid.grid.errors import UserError, toml_of

Scalar = bool | int | float | str
TABLES = ("recipe", "set", "sweep", "data", "weights", "checkpoints", "resources", "reliability", "budget")
LISTS = ("datasets", "recipes", "objectives", "seeds", "tables", "trackers", "uses", "exclude")
"""Fields that hold lists; a single value stands for a list of one."""
RANGES = {"log": 2, "linear": 3}
"""How the values of a range are spaced, with the significant digits that they are rounded to."""


def parse(path: Path) -> dict[str, Any]:
    """The content of a grid file, not yet checked.

    Raises:
        UserError: there is no such file, or it is no TOML.
    """
    return toml_of(path, f"grid {str(path)!r}", "`goalgrid grids` lists the shipped grids.")


def normal(content: Mapping[str, Any], where: str) -> dict[str, Any]:
    """The content with lists for single values, dotted names for tables in [set] and [sweep], and values for ranges.

    Raises:
        UserError: a setting stands there twice, with a dotted name and in a table; or a range is wrong.
    """
    lone = (bool, int, float, str, dict)
    normal = {key: [value] if key in LISTS and isinstance(value, lone) else value for key, value in content.items()}
    for table in ("set", "sweep"):
        if isinstance(content.get(table), dict):
            pairs = list(_dotted(content[table], where, ranges=table == "sweep"))
            if len(dict(pairs)) < len(pairs):
                twice = next(name for name, count in Counter(name for name, _ in pairs).items() if count > 1)
                raise UserError(f"{where}: {twice} stands in [{table}] more than once")
            normal[table] = dict(pairs)
    if isinstance(swept := normal.get("sweep"), dict):
        normal["sweep"] = {name: [value] if isinstance(value, Scalar) else value for name, value in swept.items()}
    return normal


def _dotted(table: Mapping[str, Any], where: str, prefix: str = "", *, ranges: bool) -> Iterator[tuple[str, Any]]:
    """The values of a table and of the tables in it, by dotted names; with `ranges`, the values that a range means."""
    for key, value in table.items():
        name = prefix + key
        if ranges and isinstance(value, dict) and RANGES.keys() & value.keys():
            yield name, _range(value, f"{where}: {name} in [sweep]")
        elif isinstance(value, dict):
            yield from _dotted(value, where, f"{name}.", ranges=ranges)
        else:
            yield name, value


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


def extended(base: Mapping[str, Any], own: Mapping[str, Any]) -> dict[str, Any]:
    """The content of a grid file over that of the grid that it extends: tables are merged, lists and values replaced.

    What it sets is no longer swept, and the reverse. The name is its own, and so is a recipe that extends another.
    """
    before = {key: value for key, value in base.items() if key != "name"}
    recipes = own["recipe"].items() if isinstance(own.get("recipe"), dict) else ()
    anew = {name for name, recipe in recipes if isinstance(recipe, dict) and "extends" in recipe}
    if isinstance(before.get("recipe"), dict):
        before["recipe"] = {name: recipe for name, recipe in before["recipe"].items() if name not in anew}
    for table, other in (("set", "sweep"), ("sweep", "set")):
        if isinstance(before.get(other), dict) and isinstance(own.get(table), dict):
            before[other] = {name: value for name, value in before[other].items() if name not in own[table]}
    return catalog.over(before, dict(own))
