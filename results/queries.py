"""Uncertainty over queries: how much a recall would change with other test images, the trained models held fixed.

It is another uncertainty than that over seeds, and is kept apart from it. The images are resampled, each with its
captions: captions of one image are no independent queries.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from grid.expansion import Cell, trials_of
from grid.home import Home
from results import record
from results.statistics import Interval, bootstrap_interval

_CUTS = {"r1": 1, "r5": 5, "r10": 10}


@dataclass(frozen=True)
class Ranks:
    """Rank of every test query of some trials, from 0."""

    by_trial: Mapping[str, Mapping[str, NDArray[Any]]]
    """By trial id, then by direction."""

    @classmethod
    def read(cls, cells: Iterable[Cell], home: Home) -> "Ranks":
        """Read the ranks of all trials that are done.

        Raises:
            UserError: a record cannot be read.
        """
        folders = [home.trial(trial.id) for trial in trials_of(cells)]
        done = [folder.record for folder in folders if folder.done.exists()]
        columns = {"i2t": "test_i2t_ranks", "t2i": "test_t2i_ranks"}
        table = record.collect(done, ["trial_id", *columns.values()])
        return cls({
            table["trial_id"][row].as_py(): {
                direction: np.from_dlpack(table[column][row].values)  # to_numpy() would import pandas
                for direction, column in columns.items()
            }
            for row in range(table.num_rows)
        })  # fmt: skip

    def per_image(self, trials: Sequence[str], metric: str) -> NDArray[np.float64] | None:
        """What each test image adds to a recall or to rsum, in percent, as a mean over trials; its mean is the metric.

        None for a median rank, which is no mean over images, and where images differ in their number of captions.
        """
        each = [_per_image(self.by_trial[trial], metric) for trial in trials]
        return np.mean([one for one in each if one is not None], axis=0) if each and each[0] is not None else None

    def interval(self, trials: Sequence[str], metric: str, *, minus: Sequence[str] = ()) -> Interval | None:
        """Interval of a cell's metric, or of its difference from another cell, query by query, over test images.

        Args:
            trials: of the cell; `minus`: of the other, of the same seeds.
        """
        own = self.per_image(trials, metric)
        other = self.per_image(minus, metric) if minus else 0.0
        return None if own is None or other is None else bootstrap_interval(own - other)


def _per_image(ranks: Mapping[str, NDArray[Any]], metric: str) -> NDArray[np.float64] | None:
    if metric == "rsum":
        parts = [_per_image(ranks, f"{direction}_{cut}") for direction in ranks for cut in _CUTS]
        return np.sum([part for part in parts if part is not None], axis=0) if parts[-1] is not None else None
    direction, _, cut = metric.partition("_")
    images, queries = len(ranks["i2t"]), ranks[direction]
    if cut not in _CUTS or len(queries) % images:
        return None
    return 100.0 * (queries.reshape(images, -1) < _CUTS[cut]).mean(axis=1)
