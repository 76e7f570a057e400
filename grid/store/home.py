"""The runs folder: the files of trials and grids, and the state of a trial.

State is read from the disk and stored nowhere else; every path is a property of one object.
"""

import os
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from goalgrid.grid.errors import UserError
from goalgrid.grid.store.attempts import Attempt, Failure, attempts_in, live_in, names_in
from goalgrid.grid.store.files import exists, json_lines, read_json, readable_text

_SETTINGS, _ATTEMPTS, _ERROR, _STOPPED, _DONE = "settings.json", "attempts", "error.txt", "stopped", "done"
"""The names in a trial's folder that decide its state."""


class Below:
    """A path below the folder whose attribute it is: `record = Below("record.parquet")`."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __get__(self, folder: "TrialFolder | GridFolder | LaunchFolder | Home", kind: type) -> Path:
        return folder.path / self.name


class State(StrEnum):
    """The state of a trial, which its folder tells."""

    PLANNED = "planned"
    RUNNING = "running"
    INTERRUPTED = "interrupted"
    FAILED = "failed"
    STOPPED = "stopped"
    """The rule of a search ended it at an epoch's end; it can go on from its checkpoint."""
    DIVERGED = "diverged"
    """A search trial whose loss was not finite: the worst result of its search, and no failure of the grid."""
    DONE = "done"
    UNREADABLE = "unreadable"
    """Its folder cannot be listed: it is not this user's to read, or its disk fails."""


SETTLED = (State.DONE, State.STOPPED, State.DIVERGED)
"""The states in which nothing is left to train or to mend."""
ENDED = (*SETTLED, State.FAILED)
"""The states in which a launch leaves a trial for good."""


@dataclass(frozen=True)
class TrialFolder:
    """`runs/trials/<trial id>/`, shared by all grids."""

    path: Path
    settings = Below(_SETTINGS)
    environment = Below("environment.json")
    imported = Below("imported.json")
    """Which published checkpoint the record is of; no trial that was trained here has it."""
    vocabulary = Below("vocabulary.json")
    history = Below("history.jsonl")
    last_checkpoint = Below("last.ckpt")
    previous_checkpoint = Below("previous.ckpt")
    best_checkpoint = Below("best.ckpt")
    record = Below("record.parquet")
    trace = Below("trace.parquet")
    """The values of single steps, of a trial with `train.trace_every`."""
    triplets = Below("triplets.parquet")
    """Densities of the validation split's triplets, epoch by epoch, of such a trial."""
    pooling = Below("pooling.parquet")
    """Learnt pooling weights of its selected checkpoint, of a trial with GPO or ADPOOL."""
    speed = Below("speed.parquet")
    """How fast its model is, once `goalgrid evaluate --speed` has measured it."""
    evaluations = Below("evaluations")
    """Further evaluations, by [evaluate] of a grid: a file per protocol."""
    error = Below(_ERROR)
    stopped = Below(_STOPPED)
    """JSON: the `epoch` after which a rule stopped it, `by` which metric, its value, and the `bound` that it missed."""
    attempts_folder = Below(_ATTEMPTS)
    origin = Below("origin.json")
    """Origin and time of a trial that `goalgrid merge` took from another runs folder."""
    done = Below(_DONE)
    """Written last: if it exists, the record is whole."""

    @property
    def trial_id(self) -> str:
        return self.path.name

    def evaluation(self, protocol: str) -> Path:
        """Return the file of its evaluation by a protocol of another data set, or by people's judgements."""
        return self.evaluations / f"{protocol}.parquet"

    def attempts(self) -> list[Attempt]:
        return attempts_in(self.attempts_folder)

    def latest(self) -> Attempt | None:
        return next(reversed(self.attempts()), None)

    def state(self) -> State:
        """Derive the state from the names in the folder, listed once; of a stopped trial, also from its history."""
        try:
            names = names_in(self.path)
            if _DONE in names:
                return State.DONE
            if _ATTEMPTS in names and live_in(self.attempts_folder):
                return State.RUNNING
        except OSError:
            return State.UNREADABLE
        if _ERROR in names:
            return State.FAILED
        if _STOPPED in names:
            return State.STOPPED if self._history_is_whole() else State.INTERRUPTED
        return State.INTERRUPTED if _SETTINGS in names else State.PLANNED

    def _history_is_whole(self) -> bool:
        """Whether a stopped trial's history has every epoch up to the stop; else its checkpoint restores it."""
        epochs = [row["epoch"] for row in self.rows()]
        last = read_json(self.stopped).get("epoch", len(epochs))
        return bool(epochs) and epochs == list(range(1, len(epochs) + 1)) and last == len(epochs)

    def is_done(self) -> bool:
        """Return whether the trial is done (False if its folder is unreadable)."""
        return exists(self.done)

    def unreadable(self) -> str:
        """Return why the folder cannot be listed; empty if it can."""
        try:
            names_in(self.path)
            names_in(self.attempts_folder)
        except OSError as error:
            return f"{error.strerror}: {error.filename}"
        return ""

    def rows(self, *, last_first: bool = False) -> Iterator[dict[str, Any]]:
        """Yield the epochs of the history, without damaged lines: the checkpoints hold the history too."""
        for row in json_lines(self.history, last_first=last_first):
            if isinstance(row.get("epoch"), int) and isinstance(row.get("step"), int):
                yield row

    def last_row(self) -> dict[str, Any] | None:
        return next(self.rows(last_first=True), None)

    def failure(self) -> Failure | None:
        """Return the class of a failed trial's last failure; None for any other trial."""
        latest = self.latest()
        return latest.failure() if latest and exists(self.error) else None

    def reason(self) -> str:
        """Return the last line of a failed trial's error; empty for any other trial."""
        if not exists(self.error):
            return ""
        lines = readable_text(self.error).strip().splitlines()
        return lines[-1] if lines else "no message"


@dataclass(frozen=True)
class GridFolder:
    """`runs/grids/<grid name>/`."""

    path: Path
    grid = Below("grid.toml")
    """The grid as it was last run, overrides included."""
    trials = Below("trials.txt")
    choices = Below("choices.json")
    """Choices of validation for each cell, at the last run; a note for readers, since the records decide."""
    searches = Below("searches.jsonl")
    """Searches that ended before the present one: see `earlier_searches`."""
    imported = Below("imported.txt")
    """Ids of the published checkpoints that tables show next to the grid's trials."""
    probe = Below("probe.json")
    results = Below("results.parquet")
    tables = Below("tables")
    report = Below("report.html")
    notes = Below("notes.md")
    """Notes that the user adds later; the report shows them."""
    figures = Below("figures")
    slurm = Below("slurm.txt")
    """Ids of the Slurm jobs that `goalgrid slurm --submit` sent."""
    launches = Below("launches")
    """Kept launches on clusters, a folder each."""
    mirrored = Below("mlflow.json")
    """The finished trials that MLflow holds, so that a run with nothing to train need not ask it."""

    def ids(self) -> list[str]:
        """Read the ids of its trials; a damaged file gives lines that are not ids."""
        return readable_text(self.trials).splitlines()

    def imported_ids(self) -> list[str]:
        return readable_text(self.imported).splitlines()

    def launch(self, launch_id: str) -> "LaunchFolder":
        return LaunchFolder(self.launches / launch_id)

    def kept_launches(self) -> "list[LaunchFolder]":
        """List the launches that are kept, oldest first."""
        folders = [LaunchFolder(path.parent) for path in self.launches.glob("*/launch.json")]
        return sorted(folders, key=lambda folder: (folder.content.stat().st_mtime, folder.path.name))


@dataclass(frozen=True)
class LaunchFolder:
    """`runs/grids/<grid name>/launches/<id>/`: see `kept_launch`."""

    path: Path
    grid = Below("grid.toml")
    content = Below("launch.json")
    snapshot = Below("code.tar.gz")
    """The code that its jobs run, if it keeps that."""


@dataclass(frozen=True)
class Home:
    """goalgrid's home, `--runs DIR` or `GOALGRID_RUNS`: a local or shared folder."""

    path: Path
    trials_folder = Below("trials")
    summaries = Below("summaries.parquet")
    """The columns of all records that tables read: a copy, made again where it is out of date."""
    replaced = Below("replaced")
    """The earlier folders of trials that were retrained."""
    trash = Below("trash")
    """The trials that `goalgrid prune` removed: a folder for each run of it, in which every trial has its id."""
    features = Below("features")
    data = Below("data")
    """The content of data sets, with the stamp of the files that were read."""
    memory = Below("memory")
    """The GPU memory that trials need, measured for each kind of trial and each GPU."""
    mark = Below(".goalgrid")
    """Holds a random word, by which a node knows that it sees this folder and no empty mount point."""
    launches = Below("launches")
    mlflow = Below("mlflow.db")
    mlflow_files = Below("mlflow")
    """The files of MLflow's runs."""
    tensorboard = Below("tensorboard")
    wandb = Below("wandb")

    def trial(self, trial_id: str) -> TrialFolder:
        return TrialFolder(self.trials_folder / trial_id)

    def grid(self, name: str) -> GridFolder:
        return GridFolder(self.path / "grids" / name)

    def grids(self) -> list[str]:
        """List the names of the grids that ran here."""
        folders = [GridFolder(path) for path in sorted(self.path.glob("grids/*"))]
        return [folder.path.name for folder in folders if folder.grid.exists() or folder.trials.exists()]

    def trials(self) -> list[TrialFolder]:
        return [self.trial(trial_id) for trial_id in sorted(self.standing())]

    def standing(self) -> set[str]:
        """List the ids of trials that have a folder, in one listing; UserError: the folder of trials is unreadable."""
        try:
            with os.scandir(self.trials_folder) as entries:
                return {entry.name for entry in entries if _is_folder(entry) and not entry.name.startswith(".")}
        except FileNotFoundError:
            return set()
        except OSError as error:
            raise UserError(f"cannot read {self.trials_folder}: {error.strerror}. --runs DIR names another.") from error

    def states(self, ids: Iterable[str], ruled: Collection[str] = ()) -> dict[str, State]:
        """Return the states of these trials, by id; only a trial that was started costs a look into its folder.

        Args:
            ruled: ids of the trials that a rule may stop. Any other stopped trial goes on, so it is interrupted.
        """
        standing = self.standing()
        states = {name: self.trial(name).state() if name in standing else State.PLANNED for name in ids}
        goes_on = [name for name, state in states.items() if state is State.STOPPED and name not in ruled]
        return states | dict.fromkeys(goes_on, State.INTERRUPTED)

    def stop_request(self, launch: str) -> Path:
        """Return the file that, while it exists, asks the trials of this launch to write a checkpoint and end."""
        return self.launches / f"{launch}.stop"


class BeforeReplacement(Home):
    """A runs folder with each trial as it was done before it was last retrained."""

    def trial(self, trial_id: str) -> TrialFolder:
        """Return the latest folder in `replaced/` with this finished trial, or a folder that does not exist."""
        folders = [path for path in self.replaced.glob(f"{trial_id}-*") if (path / _DONE).exists()]
        return TrialFolder(max(folders, default=self.replaced / trial_id))

    def standing(self) -> set[str]:
        """List the ids of all trials that were retrained."""
        return {path.name.rpartition("-")[0] for path in self.replaced.glob("*-*")}


def _is_folder(entry: os.DirEntry[str]) -> bool:
    """True also if the disk does not answer, as for a link to itself: the state of the trial is then `unreadable`."""
    try:
        return entry.is_dir()
    except OSError:
        return True
