"""What figures are drawn from: one block of a grid, with its scores and the histories of its trials."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from grid.expansion import Cell, trials_of
from grid.store.home import Home
from results.analysis.factors import GridPart, factors_of, parts_of
from results.analysis.observations import Observations
from results.records import record
from results.records.scores import Scores

History = Mapping[str, Mapping[int, float]]
"""Logged values by name, then by epoch."""


@dataclass(frozen=True)
class Study:
    """One block: a recipe on a data set."""

    part: GridPart
    scores: Scores
    histories: Mapping[str, History]
    """Histories of the finished trials, by trial id."""

    @classmethod
    def read(cls, cells: Sequence[Cell], scores: Scores, home: Home) -> "list[Study]":
        """A study for every block that has finished trials.

        Raises:
            UserError: a record cannot be read.
        """
        wanted = [home.trial(trial.id).record for trial in trials_of(cells) if trial.id in scores.rows]
        rows = record.collect(wanted, ["trial_id", "history"]).to_pylist()
        histories = {row["trial_id"]: _by_name(row["history"]) for row in rows}
        studies = [cls(part, scores, histories) for part in parts_of(cells)]
        return [study for study in studies if any(map(study.trials, study.part.cells))]

    @property
    def title(self) -> str:
        return self.part.title

    @property
    def is_matrix(self) -> bool:
        """Whether the objectives cross pair with triplet weights, two of each at least."""
        factors, _ = factors_of(self.part.places)
        return len(factors) == 2

    def trials(self, name: str) -> list[str]:
        """The finished trials of a cell."""
        return [trial.id for trial in self.part.cells[name].trials if trial.id in self.histories]

    def shared(self, metric: str) -> Observations:
        """A test metric of all cells, in the seeds that they share."""
        return Observations.shared({name: self.scores.of(cell, metric) for name, cell in self.part.cells.items()})

    def logged(self, quantity: str) -> bool:
        """Whether a trial logged this quantity."""
        return any(quantity in history for history in self.histories.values())

    def curve(self, name: str, quantity: str) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """Epochs, and what a cell's trials logged in them: (epochs,), (trials, epochs)."""
        found = [self.histories[trial].get(quantity, {}) for trial in self.trials(name)]
        epochs = sorted(set.intersection(*map(set, found))) if found else []
        values = np.array([[values[epoch] for epoch in epochs] for values in found], dtype=float)
        return np.array(epochs, dtype=int), values.reshape(len(found), len(epochs))


def _by_name(rows: Sequence[Mapping[str, Any]]) -> dict[str, dict[int, float]]:
    history: dict[str, dict[int, float]] = {}
    for row in rows:
        history.setdefault(row["name"], {})[row["epoch"]] = row["value"]
    return history
