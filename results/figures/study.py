"""What figures are drawn from, one block of a grid with the histories of its trials; and what a kind of figure is."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from goalgrid.grid.expansion import Cell, trials_of, with_values
from goalgrid.grid.groups import nested
from goalgrid.grid.store.home import Home, TrialFolder
from goalgrid.results.analysis.factors import GridPart, parts_of
from goalgrid.results.layouts.captions import directions, noun_of
from goalgrid.results.records import record, steps
from goalgrid.results.records.scores import Scores


@dataclass(frozen=True)
class Study:
    """One block: a recipe on a data set."""

    part: GridPart
    scores: Scores
    histories: Mapping[str, Mapping[str, Mapping[int, float]]]
    """Logged values of the finished trials: by trial id, then by name, then by epoch."""
    home: Home

    @classmethod
    def read(cls, cells: Sequence[Cell], scores: Scores, home: Home) -> "list[Study]":
        """Return the blocks that have finished trials."""
        paths = [home.trial(trial.id).record for trial in trials_of(cells) if trial.id in scores.rows]
        rows = record.collect(paths, ["trial_id", "history"]).to_pylist()
        logged = {
            row["trial_id"]: nested((logged["name"], logged["epoch"], logged["value"]) for logged in row["history"])
            for row in rows
        }
        studies = [cls(part, scores, logged, home) for part in parts_of(cells)]
        return [study for study in studies if study.every_trial]

    @property
    def title(self) -> str:
        return self.part.title

    @property
    def directions(self) -> dict[str, str]:
        """The titles of both directions, `Image → Text` and `Text → Image`."""
        titles = directions(noun_of(self.part.cells.values()))
        return {direction: title.text for direction, title in titles.items()}

    def trials(self, name: str) -> list[str]:
        return [trial.id for trial in self.part.cells[name].trials if trial.id in self.histories]

    @property
    def every_trial(self) -> list[str]:
        return [trial for name in self.part.cells for trial in self.trials(name)]

    @property
    def spread(self) -> str:
        """Explanation of a line or point and its band or bar, for a figure's note."""
        several = any(len(self.trials(name)) > 1 for name in self.part.cells)
        return "mean and ± one sample standard deviation over seeds" if several else "one seed, no spread"

    def beside(self, file: Callable[[TrialFolder], Path], along: str) -> "Study":
        """Return the study with the content of this file of each trial, by step or rank, instead of the histories."""
        files = {trial: file(self.home.trial(trial)) for trial in self.every_trial}
        contents = {trial: steps.read(path, along, self.scores.leave) for trial, path in files.items()}
        return replace(self, histories={trial: values for trial, values in contents.items() if values})

    def curve(self, name: str, quantity: str) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """Return epochs, and what a cell's trials logged in them: (epochs,), (trials, epochs)."""
        logs = [self.histories[trial].get(quantity, {}) for trial in self.trials(name)]
        epochs = sorted(set.intersection(*map(set, logs))) if logs else []
        values = np.array([[values[epoch] for epoch in epochs] for values in logs], dtype=float)
        return np.array(epochs, dtype=int), values.reshape(len(logs), len(epochs))


EPOCHS = "trials that were trained here for an epoch or more"
"""Requirement of figures of histories."""

TRACED = "trials with train.trace_every; to train finished ones with it: goalgrid run --force"
"""Requirement of figures of single steps."""


@dataclass(frozen=True)
class FigureKind:
    place: int
    draw: Callable[..., Figure | None]
    """Draws a study; None if it has nothing to draw. `training` and `steps` take options."""
    title: str
    needs: str
    """Requirement of a block to be drawn, for a user whose grid has no such block."""
    gather: Callable[[Sequence[Study]], Sequence[Study]] | None = None
    """Puts blocks together that a figure shows in one picture; None: a picture for each block."""


def by_dataset(studies: Sequence[Study]) -> list[Study]:
    """Return a study per data set, with the cells of all recipes, named by recipe, objective and swept values."""
    return regrouped(studies, lambda cell: cell.dataset, lambda cell: f"{cell.recipe} {cell.objective}")


def regrouped(studies: Sequence[Study], title: Callable[[Cell], str], name: Callable[[Cell], str]) -> list[Study]:
    """Return a study per title, with the cells that have it, named by their swept values, too."""
    every = [cell for study in studies for cell in study.part.cells.values()]
    groups = nested((title(cell), with_values(name(cell), cell.swept), cell) for cell in every)
    return [
        replace(studies[0], part=GridPart(shown, cells, {known: (known,) for known in cells}))
        for shown, cells in groups.items()
    ]
