"""Uncertainty over queries: how much a recall would change with other test images, the trained models held fixed.

Images are resampled together with their captions, because the captions of an image are not independent queries.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from goalgrid.grid.expansion import Cell, trials_of
from goalgrid.grid.store.home import Home
from goalgrid.results.records import record
from goalgrid.results.statistics.significance import Interval, bootstrap_interval

_CUTS = {"r1": 0.5, "r5": 5, "r10": 10}
"""A query is found below this rank; a mean place of 0.5, of a tie, is no first place."""


@dataclass(frozen=True)
class QueryRanks:
    """Rank of every test query of finished trials, from 0."""

    by_trial: Mapping[str, Mapping[str, NDArray[Any]]]
    """By trial id: the ranks of `i2t` and `t2i`, and as `image` the image of each caption where it is recorded."""

    @classmethod
    def read(cls, cells: Iterable[Cell], home: Home) -> "QueryRanks":
        """Read the ranks of all finished trials whose record can be read; `Scores.read` names the others."""
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
        """A recall or rsum of every test image, in percent, as a mean over trials.

        None for a median rank, and for records that do not say which image a caption has.
        """
        values = [_per_image(self.by_trial[trial], metric) for trial in trials]
        return np.mean([row for row in values if row is not None], axis=0) if values and values[0] is not None else None

    def interval(self, trials: Sequence[str], metric: str, *, minus: Sequence[str] = ()) -> Interval | None:
        """Interval over test images of a cell's metric, or of its difference from that of the trials `minus`."""
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
    return hits if direction == "i2t" else _by_image(hits, ranks["image"], len(ranks["i2t"]))


def _by_image(hits: NDArray[np.float64], owners: NDArray[Any], images: int) -> NDArray[np.float64]:
    """The mean over captions, and for every image by how much, to first order, its captions move it."""
    moved = np.bincount(owners, hits - hits.mean(), images)
    return np.asarray(hits.mean() + moved * images / len(hits))
