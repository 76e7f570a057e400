"""Syntax of settings in a grid file: dotted names, nested tables, single values and ranges."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from goalgrid.grid.errors import UserError

Scalar = bool | int | float | str
RANGES = {"log": 2, "linear": 3}
"""The spacings of a range, each with the number of significant digits of its values."""
DISTRIBUTIONS = ("uniform", "log_uniform")
"""The distributions from which [select] can draw."""


def flat(table: Mapping[str, Any], whole: Callable[[str], bool] = lambda key: False) -> dict[str, Any]:
    """Flatten nested tables to dotted names; tables under keys for which `whole` is true are kept as values.

    >>> flat({"train": {"lr": 0.1, "decay": None}, "seed": 0})
    {'train.lr': 0.1, 'train.decay': None, 'seed': 0}
    """
    values: dict[str, Any] = {}
    for key, value in table.items():
        below = isinstance(value, Mapping) and not whole(key)
        values |= {f"{key}.{name}": inner for name, inner in flat(value, whole).items()} if below else {key: value}
    return values


def differing(one: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    """Return the pairs of values, by dotted name, in which nested tables differ; None for a missing value.

    >>> differing({"a": {"b": 1, "c": 2}}, {"a": {"b": 1, "c": 3}, "d": 4})
    {'a.c': (2, 3), 'd': (None, 4)}
    """
    differences: dict[str, tuple[Any, Any]] = {}
    for key in dict.fromkeys([*one, *other]):
        values = one.get(key), other.get(key)
        if all(isinstance(value, Mapping) for value in values):
            differences |= {f"{key}.{name}": pair for name, pair in differing(*values).items()}  # type: ignore[arg-type]
        elif values[0] != values[1]:
            differences[key] = values
    return differences


def setting_text(value: Any) -> str:
    """Write the value of a setting as in TOML; `none` if there is no value."""
    if value is None or value == {}:
        return "none"
    text = f"{value:g}" if isinstance(value, float) else str(value)
    return text.lower() if isinstance(value, bool) else text or '""'


def dotted(table: Mapping[str, Any], where: str, *, swept: bool) -> dict[str, Any]:
    """Flatten [set] or [sweep] to dotted names; values of [sweep] become lists, and ranges are expanded."""
    pairs = list(_pairs(table, where, swept=swept))
    if twice := [name for name, count in Counter(name for name, _ in pairs).items() if count > 1]:
        section = "[sweep]" if swept else "[set]"
        raise UserError(f"{where}: {twice[0]} appears more than once in {section}")
    return dict(pairs)


def _pairs(table: Mapping[str, Any], where: str, prefix: str = "", *, swept: bool) -> Iterator[tuple[str, Any]]:
    for key, value in table.items():
        name = prefix + key
        if swept and isinstance(value, dict) and RANGES.keys() & value.keys():
            yield name, _range(value, f"{where}: {name} in [sweep]")
        elif swept and isinstance(value, dict) and value.keys() & set(DISTRIBUTIONS):
            yield name, value
        elif isinstance(value, dict):
            yield from _pairs(value, where, f"{name}.", swept=swept)
        else:
            yield name, [value] if swept and isinstance(value, Scalar) else value


def _range(table: Mapping[str, Any], where: str) -> list[int] | list[float]:
    """Expand `{log = [first, last, count]}` or `{linear = [first, last, count]}`."""
    form = "a range is { log = [first, last, count] } or { linear = [first, last, count] }"
    (kind, ends), *others = table.items()
    numbers = isinstance(ends, list) and all(type(end) in (int, float) for end in ends)
    if others or not numbers or len(ends) != 3 or type(ends[2]) is not int:
        raise UserError(f"{where}: {dict(table)} is not a range; {form}, e.g. {{ log = [1e-4, 1e-3, 5] }}.")
    first, last, count = ends
    if kind == "log" and min(first, last) <= 0:
        raise UserError(f"{where}: {kind} = {ends} needs a first and a last number above 0.")
    if count < 2 or first == last:
        raise UserError(f"{where}: {kind} = {ends} needs two different ends and a count of at least 2.")
    return spaced(kind, first, last, count)


def spaced(kind: str, first: float, last: float, count: int) -> list[int] | list[float]:
    """Return `count` values between two ends, rounded to 2 significant digits on a log scale and to 3 on a linear one.

    >>> spaced("log", 1e-4, 1e-3, 5), spaced("log", 32, 256, 4), spaced("linear", 0, 1, 5)
    ([0.0001, 0.00018, 0.00032, 0.00056, 0.001], [32, 64, 128, 256], [0.0, 0.25, 0.5, 0.75, 1.0])

    Integers between integer ends are not rounded, and more digits are kept if two values would be equal.
    """
    shares = [place / (count - 1) for place in range(count)]
    exact = [first * (last / first) ** share if kind == "log" else first + (last - first) * share for share in shares]
    whole = isinstance(first, int) and isinstance(last, int)

    def written(value: float, digits: int) -> float:
        return round(value) if whole and abs(value - round(value)) < 1e-9 else float(f"{value:.{digits}g}")

    values = exact
    for digits in range(RANGES[kind], 18):
        values = [first, *(written(value, digits) for value in exact[1:-1]), last]
        if len(set(values)) == count:
            break
    if whole and all(float(value).is_integer() for value in values):
        return [int(value) for value in values]
    return [float(value) for value in values]
