"""Ranks of test queries: the uncertainty of a recall over test images, and example queries that are worth a look.

For the uncertainty, models are held fixed, and images are resampled together with their captions, because the captions
of an image are not independent queries. Examples are queries that all seeds find or miss, and queries on which two
objectives differ.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from goalgrid.grid.expansion import Cell, trials_of
from goalgrid.grid.store.home import Home
from goalgrid.results.layouts.captions import DIRECTIONS
from goalgrid.results.records import record
from goalgrid.results.statistics.significance import Interval, bootstrap_interval

_CUTS = {"r1": 0.5, "r5": 5, "r10": 10}
"""A query counts as found if its rank (from 0) is below this; a mean rank of 0.5, from a tie, is not first."""


@dataclass(frozen=True)
class QueryRanks:
    """Ranks (from 0) of all test queries of finished trials."""

    by_trial: Mapping[str, Mapping[str, NDArray[Any]]]
    """By trial id: ranks for `i2t` and `t2i`, and under `image` the image of each caption, if recorded."""

    @classmethod
    def read(cls, cells: Iterable[Cell], home: Home) -> "QueryRanks":
        """Read the ranks of all finished trials with readable records; `Scores.read` reports the unreadable ones."""
        folders = [home.trial(trial.id) for trial in trials_of(cells)]
        done = [folder.record for folder in folders if folder.is_done()]
        columns = {"i2t": "test_i2t_ranks", "t2i": "test_t2i_ranks", "image": "test_image_of_text"}
        table = record.collect(done, ["trial_id", *columns.values()], unreadable={})
        return cls({
            trial_id: {
                name: record.ranks_of(np.from_dlpack(values))  # to_numpy() would import pandas
                for name, column in columns.items()
                if (values := table[column][row].values) is not None
            }
            for row, trial_id in enumerate(table["trial_id"].to_pylist())
        })  # fmt: skip

    def per_image(self, trials: Sequence[str], metric: str) -> NDArray[np.float64] | None:
        """Return the recall or rsum of each test image, in percent, averaged over trials.

        None for a median rank, or if the records do not tell which image a caption belongs to.
        """
        values = [_per_image(self.by_trial[trial], metric) for trial in trials]
        return np.mean([row for row in values if row is not None], axis=0) if values and values[0] is not None else None

    def interval(self, trials: Sequence[str], metric: str, *, minus: Sequence[str] = ()) -> Interval | None:
        """Return the bootstrap interval over test images of the mean metric of `trials`, or of its lead over `minus`.

        None where `per_image` returns None.
        """
        values = self.per_image(trials, metric)
        other = self.per_image(minus, metric) if minus else 0.0
        return None if values is None or other is None else bootstrap_interval(values - other)


def _per_image(ranks: Mapping[str, NDArray[Any]], metric: str) -> NDArray[np.float64] | None:
    if metric == "rsum":
        parts = [_per_image(ranks, f"{direction}_{cut}") for direction in ("i2t", "t2i") for cut in _CUTS]
        known = [part for part in parts if part is not None]
        return np.sum(known, axis=0) if len(known) == len(parts) else None
    direction, _, cut = metric.partition("_")
    if cut not in _CUTS or (direction == "t2i" and "image" not in ranks):
        return None
    hits = np.where(ranks[direction] < _CUTS[cut], 100.0, 0.0)
    if direction == "i2t":
        return hits
    images = len(ranks["i2t"])  # the mean over captions, and by how much, to first order, those of an image move it
    moved = np.bincount(ranks["image"], hits - hits.mean(), images)
    return np.asarray(hits.mean() + moved * images / len(hits))


SHOWN = 5
"""Number of answers shown per query; a query counts as missed if none of them is correct."""
MISSED = 2
"""Maximum number of missed queries per direction."""

Ranks = NDArray[np.int64] | NDArray[np.float64]
"""Ranks from 0, (seeds, queries); mean ranks of ties may end in 1/2."""


@dataclass(frozen=True)
class ExampleQuery:
    direction: str
    row: int
    why: str


def example_queries(
    objective: str, ranks: Mapping[str, Ranks], others: Mapping[str, Mapping[str, Ranks]]
) -> list[ExampleQuery]:
    """Choose up to five example queries per direction: found, missed, or found by only one of two objectives.

    Args:
        objective: the cell's objective.
        ranks: ranks for all finished seeds of the cell, by direction.
        others: ranks for cells that differ only in the objective, by objective and direction.
    """
    return [
        ExampleQuery(direction, row, why)
        for direction in DIRECTIONS
        if direction in ranks
        for row, why in _of(objective, ranks[direction], {name: of[direction] for name, of in others.items()})
    ]


def _of(objective: str, mine: Ranks, others: Mapping[str, Ranks]) -> Iterator[tuple[int, str]]:
    """Yield the example queries of a direction, each with the reason why it is shown."""
    seeds = f"all {len(mine)} seeds" if len(mine) > 1 else "its seed"
    hits, misses = np.asarray((mine == 0).all(0)), np.asarray((mine >= SHOWN).all(0))
    for row in np.flatnonzero(hits)[:1].tolist():
        yield row, f"found first by {seeds}"
    best = mine.min(0)
    for row in _largest(best, misses)[:MISSED]:
        yield row, f"missed by {seeds}: the best rank is {best[row] + 1:g}"
    for rows, other_has in ((hits, False), (misses, True)):
        yield from _against(objective, rows, others, found_by_other=other_has)


def _against(
    objective: str, among: NDArray[np.bool_], others: Mapping[str, Ranks], *, found_by_other: bool
) -> Iterator[tuple[int, str]]:
    """Yield the query on which another objective differs most, of those that this one finds or misses in all seeds."""
    candidates = []
    for other, theirs in others.items():
        differ = among & ((theirs == 0).all(0) if found_by_other else (theirs >= SHOWN).all(0))
        candidates += [(float(theirs[:, row].min()), -row, other) for row in _largest(theirs.min(0), differ)[:1]]
    if candidates:
        _, row, other = max(candidates)
        first, second = (other, objective) if found_by_other else (objective, other)
        yield -row, f"every seed of {first} finds it first, every seed of {second} misses it"


def _largest(values: Ranks, among: NDArray[np.bool_]) -> Sequence[int]:
    """Return the selected rows, sorted by decreasing value; ties keep their order."""
    rows = np.flatnonzero(among)
    return [int(row) for row in rows[np.argsort(-values[rows], kind="stable")]]
