"""A grid as it stands on the disk: its cells, every trial's state, what is left and what that will cost."""

from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from grid import catalog
from grid.encoders import BackboneSettings
from grid.errors import UserError, unknown
from grid.expansion import Cell, Trial, expand, trials_of
from grid.files import read_json_lines
from grid.gridfile import Grid, load
from grid.home import Home, State

COLLAPSED = 1e-3
"""A spread of cosine similarities below this is a model that tells no pair from another."""


@dataclass(frozen=True)
class Overview:
    """A grid with its trials' states, read once."""

    grid: Grid
    home: Home
    cells: list[Cell]
    trials: list[Trial]
    states: dict[str, State]

    @classmethod
    def of(cls, grid: Grid, home: Home) -> "Overview":
        """Expand the grid and look at every trial's folder."""
        cells = expand(grid)
        trials = trials_of(cells)
        return cls(grid, home, cells, trials, {trial.id: home.trial(trial.id).state() for trial in trials})

    def count(self, state: State) -> int:
        return Counter(self.states.values())[state]

    def left(self) -> list[Trial]:
        """Trials that a run would train."""
        return [trial for trial in self.trials if self.states[trial.id] is not State.DONE]

    def headline(self) -> str:
        """`45 trials: 40 done, 1 running, 1 failed, 3 planned`."""
        order = (State.DONE, State.RUNNING, State.FAILED, State.INTERRUPTED, State.PLANNED)
        counts = ", ".join(f"{self.count(state)} {state}" for state in order if self.count(state))
        chains = sum(trial.parent is None for trial in self.trials)
        chained = f" in {_many(chains, 'chain')}" if chains < len(self.trials) else ""
        return f"{_many(len(self.trials), 'trial')}{chained}: {counts}"

    def failures(self) -> dict[str, list[Trial]]:
        """Failed trials by their reason."""
        grouped: dict[str, list[Trial]] = {}
        for trial in self.trials:
            if self.states[trial.id] is State.FAILED:
                grouped.setdefault(self.home.trial(trial.id).reason(), []).append(trial)
        return grouped

    def collapsed(self) -> list[Trial]:
        """Trials whose model, at their last epoch, gave all pairs the same similarity."""
        begun = [trial for trial in self.trials if self.states[trial.id] is not State.PLANNED]
        last = [(trial, read_json_lines(self.home.trial(trial.id).history)[-1:]) for trial in begun]
        return [trial for trial, rows in last if rows and rows[0].get("val_spread", 1.0) < COLLAPSED]

    def to_dict(self) -> dict[str, Any]:
        """For `--json`."""
        return {
            "grid": self.grid.name,
            "trials": len(self.trials),
            "states": {state.value: self.count(state) for state in State},
            "failed": {reason: [trial.id for trial in trials] for reason, trials in self.failures().items()},
            "collapsed": [trial.id for trial in self.collapsed()],
            "left": [trial.id for trial in self.left()],
        }


@dataclass(frozen=True)
class Work:
    """What is left of one recipe on one data set, in units that need no machine.

    Args:
        trials: that are left.
        steps: of one epoch; None: of a data set whose size is not known before it is opened.
        views: that a frozen backbone has to see once, for all trials together.
    """

    dataset: str
    recipe: str
    trials: int
    epochs: int
    steps: int | None
    views: int | None
    after: str | None
    """The recipe that it starts from."""

    @property
    def all_steps(self) -> int | None:
        return None if self.steps is None else self.trials * self.epochs * self.steps


def work_left(overview: Overview) -> list[Work]:
    """What a run would do, by data set, recipe and number of epochs, parents first."""
    groups: dict[tuple[str, str, int], list[Trial]] = {}
    for trial in overview.left():
        settings = trial.settings
        groups.setdefault((settings.dataset.name, settings.recipe, settings.train.epochs), []).append(trial)
    return [_work(*key, trials) for key, trials in groups.items()]


def _work(dataset: str, recipe: str, epochs: int, trials: list[Trial]) -> Work:
    settings = trials[0].settings
    official = catalog.dataset(dataset).splits if dataset in catalog.names("datasets") else {}
    steps = views = None
    if official:
        whole, rest = divmod(official["train"].captions, settings.train.batch_size)
        steps = whole + (rest > 1 and not settings.train.drop_last)
    image = settings.model.image
    if official and isinstance(image, BackboneSettings) and image.cached:
        views = int(image.crops) * official["train"].images + official["val"].images + official["test"].images
    return Work(dataset, recipe, len(trials), epochs, steps, views, catalog.recipe(recipe).starts_from)


def _many(number: int, what: str) -> str:
    return f"{number} {what}{'s' * (number != 1)}"


def recall(source: str, home: Home) -> Grid:
    """A grid by file, else as it was last run under this home, else the preset of that name.

    Raises:
        UserError: there is none of that name.
    """
    if source.endswith(".toml"):
        return load(source)
    if home.grid(source).grid.exists():
        return load(str(home.grid(source).grid))
    if source in catalog.names("presets"):
        return load(source)
    folder = home.path / "grids"
    run_before = [path.name for path in folder.iterdir()] if folder.is_dir() else []
    known = sorted({*run_before, *catalog.names("presets")})
    raise UserError(unknown("grid", source, known, hint="Or give the path of a grid file, ending in .toml."))


def seconds_left(overview: Overview) -> tuple[float, int] | None:
    """Training time of what is left, and how many trials it is estimated from; None without finished ones.

    By the mean of the finished trials of the same data set, recipe and number of epochs, else of all.
    """
    from results import record

    done = [trial for trial in overview.trials if overview.states[trial.id] is State.DONE]
    if not done:
        return None
    table = record.collect([overview.home.trial(t.id).record for t in done], ["trial_id", "train_seconds"])
    seconds = {row["trial_id"]: row["train_seconds"] for row in table.to_pylist()}
    alike: dict[tuple[str, str], list[float]] = {}
    for trial in done:
        alike.setdefault((trial.settings.dataset.name, trial.settings.recipe), []).append(seconds[trial.id])
    everything = list(seconds.values())
    expected = (
        alike.get((trial.settings.dataset.name, trial.settings.recipe), everything) for trial in overview.left()
    )
    return sum(sum(times) / len(times) for times in expected), len(done)


def home_at(path: Path) -> Home:
    """The runs folder of `--runs`, with its `~` resolved."""
    return Home(path.expanduser())
