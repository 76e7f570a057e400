"""Group values by key, keeping their order."""

from collections.abc import Hashable, Iterable
from typing import TypeVar

K = TypeVar("K", bound=Hashable)
L = TypeVar("L", bound=Hashable)
V = TypeVar("V")


def grouped(pairs: Iterable[tuple[K, V]]) -> dict[K, list[V]]:
    """Collect the values of each key.

    >>> grouped([("a", 1), ("b", 2), ("a", 3)])
    {'a': [1, 3], 'b': [2]}
    """
    groups: dict[K, list[V]] = {}
    for key, value in pairs:
        groups.setdefault(key, []).append(value)
    return groups


def nested(triples: Iterable[tuple[K, L, V]]) -> dict[K, dict[L, V]]:
    """Collect the values of each key by a second key; for equal pairs of keys, keep the last value.

    >>> nested([("a", "x", 1), ("b", "x", 2), ("a", "y", 3)])
    {'a': {'x': 1, 'y': 3}, 'b': {'x': 2}}
    """
    groups: dict[K, dict[L, V]] = {}
    for key, inner, value in triples:
        groups.setdefault(key, {})[inner] = value
    return groups
