"""Input of figures: a block of a grid with the histories of its trials; and the kinds of figures."""

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
    """One block of a grid: a recipe on a data set."""

    part: GridPart
    scores: Scores
    histories: Mapping[str, Mapping[str, Mapping[int, float]]]
    """Logged values of the finished trials: by trial id, name and epoch."""
    home: Home

    @classmethod
    def read(cls, cells: Sequence[Cell], scores: Scores, home: Home) -> "list[Study]":
        """Read the histories of finished trials; return the blocks that have any."""
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
        """The meaning of lines, points, bands and bars, for a figure's note."""
        several = any(len(self.trials(name)) > 1 for name in self.part.cells)
        return "mean and ± one sample standard deviation over seeds" if several else "one seed, no spread"

    def beside(self, file: Callable[[TrialFolder], Path], along: str) -> "Study":
        """Return the study with the content of a file of each trial (by step or rank) in place of the histories."""
        files = {trial: file(self.home.trial(trial)) for trial in self.every_trial}
        contents = {trial: steps.read(path, along, self.scores.leave) for trial, path in files.items()}
        return replace(self, histories={trial: values for trial, values in contents.items() if values})

    def curve(self, name: str, quantity: str) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """Return the epochs that all of a cell's trials logged, and the values: (epochs,), (trials, epochs)."""
        logs = [self.histories[trial].get(quantity, {}) for trial in self.trials(name)]
        epochs = sorted(set.intersection(*map(set, logs))) if logs else []
        values = np.array([[values[epoch] for epoch in epochs] for values in logs], dtype=float)
        return np.array(epochs, dtype=int), values.reshape(len(logs), len(epochs))


EPOCHS = "trials trained here for at least one epoch"
"""What figures of histories need."""

TRACED = "trials with train.trace_every set; to retrain finished trials with it: goalgrid run --force"
"""What figures of single steps need."""


@dataclass(frozen=True)
class FigureKind:
    place: int
    draw: Callable[..., Figure | None]
    """Draws a study; returns None if the data is missing. `training` and `steps` take options."""
    title: str
    needs: str
    """What a block needs to be drawn; shown if no block of the grid has it."""
    gather: Callable[[Sequence[Study]], Sequence[Study]] | None = None
    """Combines blocks that are drawn in one figure; None if each block has its own figure."""


def by_dataset(studies: Sequence[Study]) -> list[Study]:
    """Return one study per data set with the cells of all recipes, named by recipe, objective and swept values."""
    return regrouped(studies, lambda cell: cell.dataset, lambda cell: f"{cell.recipe} {cell.objective}")


def regrouped(studies: Sequence[Study], title: Callable[[Cell], str], name: Callable[[Cell], str]) -> list[Study]:
    """Regroup cells into one study per title; cells are named by `name` and their swept values."""
    every = [cell for study in studies for cell in study.part.cells.values()]
    groups = nested((title(cell), with_values(name(cell), cell.swept), cell) for cell in every)
    return [
        replace(studies[0], part=GridPart(shown, cells, {known: (known,) for known in cells}))
        for shown, cells in groups.items()
    ]
