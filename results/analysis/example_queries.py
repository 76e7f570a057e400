"""Which test queries are worth a look: those that every seed misses, and those on which two objectives differ."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from goalgrid.results.layouts.captions import DIRECTIONS

SHOWN = 5
"""Answers that are shown of a query; a query whose first right answer comes later counts as missed."""
MISSED = 2

Ranks = NDArray[np.int64] | NDArray[np.float64]
"""(seeds, queries), from 0; mean places of ties may end in a half."""


@dataclass(frozen=True)
class ExampleQuery:
    direction: str
    row: int
    why: str


def example_queries(
    objective: str, ranks: Mapping[str, Ranks], others: Mapping[str, Mapping[str, Ranks]]
) -> list[ExampleQuery]:
    """At most five queries a direction: found, missed, and found by this objective alone or by another one alone.

    `ranks`: of all finished seeds of the cell, by direction; `others`: of cells that differ in their objective alone.
    """
    directions = [direction for direction in DIRECTIONS if direction in ranks]
    return [query for direction in directions for query in _of(direction, objective, ranks, others)]


def _of(
    direction: str, objective: str, ranks: Mapping[str, Ranks], others: Mapping[str, Mapping[str, Ranks]]
) -> Iterator[ExampleQuery]:
    mine = ranks[direction]
    seeds = f"all {len(mine)} seeds" if len(mine) > 1 else "its seed"
    hits, misses = np.asarray((mine == 0).all(0)), np.asarray((mine >= SHOWN).all(0))
    for row in np.flatnonzero(hits)[:1].tolist():
        yield ExampleQuery(direction, row, f"found first by {seeds}")
    best = mine.min(0)
    for row in _largest(best, misses)[:MISSED]:
        yield ExampleQuery(direction, row, f"missed by {seeds}: the best rank is {best[row] + 1:g}")
    for rows, other_has in ((hits, False), (misses, True)):
        yield from _against(direction, objective, rows, others, found_by_other=other_has)


def _against(
    direction: str,
    objective: str,
    among: NDArray[np.bool_],
    others: Mapping[str, Mapping[str, Ranks]],
    *,
    found_by_other: bool,
) -> Iterator[ExampleQuery]:
    """The query on which another objective differs most, among those that this one finds, or misses, in all seeds."""
    candidates = []
    for other, ranks in others.items():
        theirs = ranks[direction]
        differ = among & ((theirs == 0).all(0) if found_by_other else (theirs >= SHOWN).all(0))
        candidates += [(float(theirs[:, row].min()), -row, other) for row in _largest(theirs.min(0), differ)[:1]]
    if candidates:
        _, row, other = max(candidates)
        first, second = (other, objective) if found_by_other else (objective, other)
        yield ExampleQuery(direction, -row, f"every seed of {first} finds it first, every seed of {second} misses it")


def _largest(values: Ranks, among: NDArray[np.bool_]) -> Sequence[int]:
    """The rows among these with the largest values, the first row first where they tie."""
    rows = np.flatnonzero(among)
    return [int(row) for row in rows[np.argsort(-values[rows], kind="stable")]]
