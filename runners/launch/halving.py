"""Early stopping of search trials by asynchronous successive halving (ASHA). Li et al., MLSys 2020.

A resumed launch reconstructs the rungs from the histories on disk. On the effect of kills see docs/reliability.md.
"""

import math
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from goalgrid.grid.select import Halving
from goalgrid.grid.store.home import Home, State

Verdict = dict[str, Any]
"""Why a trial is stopped: its `epoch`, the criterion `by`, its `metric`, and the `bound` that it missed."""


class Judge:
    """Judges trials at the end of epochs like Tune's `ASHAScheduler`, separately for each cell.

    A bound at chance-level rsum stops no trial, since the order of untrained models is random.

    Trials in `training` are judged again at the last epoch of their history, which may have ended without a verdict.
    Their earlier rungs are only read when the trial is first judged: a power failure may have emptied the history,
    which the checkpoint restores before the trial resumes.
    """

    def __init__(self, halvings: Mapping[str, Halving], home: Home, training: Collection[str]) -> None:
        self.halvings, self.home = halvings, home
        self._followed = set[str]()
        self._reached = defaultdict[tuple[str, int], list[tuple[float, float]]](list)
        """Metric and rsum of the trials that reached a rung, keyed by cell and epoch."""
        self._verdicts = dict[tuple[str, int], Verdict | None]()
        """Verdicts by trial id and epoch; kept, since a process that dies before it reads one asks again."""
        for trial_id in sorted(home.standing() & halvings.keys()):
            folder = home.trial(trial_id)
            again = trial_id in training and folder.state() is not State.STOPPED
            self._count(trial_id, list(folder.rows())[: -1 if again else None])

    def __call__(self, trial_id: str, epoch: int, metrics: Mapping[str, Any]) -> Verdict | None:
        """Judge a trial at the end of an epoch; return None if it continues."""
        if trial_id in self.halvings and trial_id not in self._followed:
            self._followed.add(trial_id)
            self._count(trial_id, [row for row in self.home.trial(trial_id).rows() if row["epoch"] < epoch])
        return self._judge(trial_id, epoch, metrics)

    def _count(self, trial_id: str, rows: Iterable[Mapping[str, Any]]) -> None:
        """Add the trial's past epochs to the rungs, without stopping it by them."""
        for row in rows:
            if self._judge(trial_id, row["epoch"], row):
                self._verdicts[trial_id, row["epoch"]] = None

    def _judge(self, trial_id: str, epoch: int, metrics: Mapping[str, Any]) -> Verdict | None:
        halving = self.halvings.get(trial_id)
        if halving is None or halving.by not in metrics or not is_rung(halving, epoch):
            return None
        if (key := (trial_id, epoch)) not in self._verdicts:
            reached, metric = self._reached[halving.cell, epoch], metrics[halving.by]
            bound, rsum = bounds(reached, halving.factor) if reached else (-math.inf, math.inf)
            verdict = {"epoch": epoch, "by": halving.by, "metric": metric, "bound": bound}
            learnt = not rsum <= metrics.get("val_chance", -math.inf)
            self._verdicts[key] = verdict if metric < bound and learnt else None
            reached.append((metric, metrics.get("val_rsum", math.nan)))
        return self._verdicts[key]


def bounds(reached: Sequence[tuple[float, float]], factor: int) -> tuple[float, float]:
    """Return the (1 - 1/factor) quantiles of metric and rsum over the trials that reached a rung."""
    metric, rsum = np.nanpercentile(reached, (1 - 1 / factor) * 100, axis=0)
    return float(metric), float(rsum)


def is_rung(halving: Halving, epoch: int) -> bool:
    """Return whether this epoch is a rung, i.e. trials are judged at its end.

    >>> [epoch for epoch in range(1, 60) if is_rung(Halving("cell", "val_rsum"), epoch)]
    [2, 6, 18, 54]
    """
    rung = halving.grace
    while rung < epoch:
        rung *= halving.factor
    return rung == epoch
