"""Uncertainty over queries: how much a recall would change with other test images, the trained models held fixed.

It is reported apart from the uncertainty over seeds. Images are resampled together with their captions, because the
captions of an image are not independent queries.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from grid.expansion import Cell, trials_of
from grid.store.home import Home
from results.records import record
from results.statistics.significance import Interval, bootstrap_interval

_CUTS = {"r1": 1, "r5": 5, "r10": 10}


@dataclass(frozen=True)
class QueryRanks:
    """Rank of every test query of finished trials, from 0."""

    by_trial: Mapping[str, Mapping[str, NDArray[Any]]]
    """Ranks by trial id, then by direction."""

    @classmethod
    def read(cls, cells: Iterable[Cell], home: Home) -> "QueryRanks":
        """Read the ranks of all finished trials whose record can be read; `Scores.read` names the others."""
        folders = [home.trial(trial.id) for trial in trials_of(cells)]
        done = [folder.record for folder in folders if folder.done.exists()]
        columns = {"i2t": "test_i2t_ranks", "t2i": "test_t2i_ranks"}
        table = record.collect(done, ["trial_id", *columns.values()], unreadable={})
        return cls({
            table["trial_id"][row].as_py(): {
                direction: np.from_dlpack(table[column][row].values)  # to_numpy() would import pandas
                for direction, column in columns.items()
            }
            for row in range(table.num_rows)
        })  # fmt: skip

    def per_image(self, trials: Sequence[str], metric: str) -> NDArray[np.float64] | None:
        """A recall or rsum of every test image, in percent, as a mean over trials. Its mean over images is the metric.

        None for a median rank, which is not a mean over images, and where images differ in their number of captions.
        """
        values = [_per_image(self.by_trial[trial], metric) for trial in trials]
        return np.mean([row for row in values if row is not None], axis=0) if values and values[0] is not None else None

    def interval(self, trials: Sequence[str], metric: str, *, minus: Sequence[str] = ()) -> Interval | None:
        """Interval over test images of a cell's metric, or of its difference from another cell, image by image.

        Args:
            trials: the trials of the cell.
            minus: the trials of the other cell, in the same seeds.
        """
        values = self.per_image(trials, metric)
        other = self.per_image(minus, metric) if minus else 0.0
        return None if values is None or other is None else bootstrap_interval(values - other)


def _per_image(ranks: Mapping[str, NDArray[Any]], metric: str) -> NDArray[np.float64] | None:
    if metric == "rsum":
        parts = [_per_image(ranks, f"{direction}_{cut}") for direction in ranks for cut in _CUTS]
        return np.sum([part for part in parts if part is not None], axis=0) if parts[-1] is not None else None
    direction, _, cut = metric.partition("_")
    images, queries = len(ranks["i2t"]), ranks[direction]
    if cut not in _CUTS or len(queries) % images:
        return None
    return 100.0 * (queries.reshape(images, -1) < _CUTS[cut]).mean(axis=1)
