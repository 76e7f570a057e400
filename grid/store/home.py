"""The runs folder: the files of trials and grids, and the state of each trial.

State is always read from disk and never stored elsewhere; each path is an attribute of one class.
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
"""The names in a trial's folder that determine its state."""


class Below:
    """Descriptor of a path within the owner's folder: `record = Below("record.parquet")`."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __get__(self, folder: "TrialFolder | GridFolder | LaunchFolder | Home", kind: type) -> Path:
        return folder.path / self.name


class State(StrEnum):
    """The state of a trial, derived from its folder."""

    PLANNED = "planned"
    RUNNING = "running"
    INTERRUPTED = "interrupted"
    FAILED = "failed"
    STOPPED = "stopped"
    """Stopped by the rule of a search at the end of an epoch; it can resume from its checkpoint."""
    DIVERGED = "diverged"
    """A search trial with a non-finite loss: the worst result of its search, but not a failure of the grid."""
    DONE = "done"
    UNREADABLE = "unreadable"
    """Its folder cannot be listed, because of missing permissions or a failing disk."""


SETTLED = (State.DONE, State.STOPPED, State.DIVERGED)
"""The states in which nothing is left to train or to fix."""
ENDED = (*SETTLED, State.FAILED)
"""The final states of a trial in a launch."""


@dataclass(frozen=True)
class TrialFolder:
    """`runs/trials/<trial id>/`, shared by all grids."""

    path: Path
    settings = Below(_SETTINGS)
    environment = Below("environment.json")
    imported = Below("imported.json")
    """The published checkpoint of an imported record; missing for trials trained here."""
    vocabulary = Below("vocabulary.json")
    history = Below("history.jsonl")
    last_checkpoint = Below("last.ckpt")
    previous_checkpoint = Below("previous.ckpt")
    best_checkpoint = Below("best.ckpt")
    record = Below("record.parquet")
    trace = Below("trace.parquet")
    """Values of single steps, if `train.trace_every` is set."""
    triplets = Below("triplets.parquet")
    """Densities of the validation split's triplets per epoch, if `train.trace_every` is set."""
    pooling = Below("pooling.parquet")
    """Learnt pooling weights of the selected checkpoint, if the trial uses GPO or ADPOOL."""
    speed = Below("speed.parquet")
    """Speed of its model, measured by `goalgrid evaluate --speed`."""
    evaluations = Below("evaluations")
    """Further evaluations requested by [evaluate] of a grid file, one file per protocol."""
    error = Below(_ERROR)
    stopped = Below(_STOPPED)
    """JSON: the `epoch` after which a rule stopped it, the metric (`by`), its value, and the `bound` that it missed."""
    attempts_folder = Below(_ATTEMPTS)
    origin = Below("origin.json")
    """Origin and time of a trial that `goalgrid merge` copied from another runs folder."""
    done = Below(_DONE)
    """Written last; if it exists, the record is complete."""

    @property
    def trial_id(self) -> str:
        return self.path.name

    def evaluation(self, protocol: str) -> Path:
        """Return the file of its evaluation by a further protocol: of another data set, or with human judgements."""
        return self.evaluations / f"{protocol}.parquet"

    def attempts(self) -> list[Attempt]:
        return attempts_in(self.attempts_folder)

    def latest(self) -> Attempt | None:
        return next(reversed(self.attempts()), None)

    def state(self) -> State:
        """Derive the state from the names in the folder and, for a stopped trial, from its history."""
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
        """Whether a stopped trial's history is complete up to the stop; if not, its checkpoint can restore it."""
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
        """Yield the epochs of the history, skipping damaged lines; the checkpoints also contain the history."""
        for row in json_lines(self.history, last_first=last_first):
            if isinstance(row.get("epoch"), int) and isinstance(row.get("step"), int):
                yield row

    def last_row(self) -> dict[str, Any] | None:
        return next(self.rows(last_first=True), None)

    def failure(self) -> Failure | None:
        """Return a failed trial's last failure class; None for any other trial."""
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
    """The grid as it was last run, including overrides."""
    trials = Below("trials.txt")
    choices = Below("choices.json")
    """Each cell's choice at the last run; only informative, since choices are recomputed from the records."""
    searches = Below("searches.jsonl")
    """Searches that ended before the present one: see `earlier_searches`."""
    imported = Below("imported.txt")
    """Ids of the imported records of published checkpoints that tables show next to the grid's trials."""
    probe = Below("probe.json")
    results = Below("results.parquet")
    tables = Below("tables")
    report = Below("report.html")
    notes = Below("notes.md")
    """Notes that the user adds later; the report shows them."""
    figures = Below("figures")
    slurm = Below("slurm.txt")
    """Ids of the Slurm jobs submitted by `goalgrid slurm --submit`."""
    launches = Below("launches")
    """Saved launches on clusters, one folder each."""
    mirrored = Below("mlflow.json")
    """The finished trials already in MLflow, so that a run with nothing to train need not query it."""

    def ids(self) -> list[str]:
        """Read the ids of its trials; a damaged file may give lines that are not ids."""
        return readable_text(self.trials).splitlines()

    def imported_ids(self) -> list[str]:
        return readable_text(self.imported).splitlines()

    def launch(self, launch_id: str) -> "LaunchFolder":
        return LaunchFolder(self.launches / launch_id)

    def kept_launches(self) -> "list[LaunchFolder]":
        """List the saved launches, oldest first."""
        folders = [LaunchFolder(path.parent) for path in self.launches.glob("*/launch.json")]
        return sorted(folders, key=lambda folder: (folder.content.stat().st_mtime, folder.path.name))


@dataclass(frozen=True)
class LaunchFolder:
    """`runs/grids/<grid name>/launches/<id>/`: see `kept_launch`."""

    path: Path
    grid = Below("grid.toml")
    content = Below("launch.json")
    snapshot = Below("code.tar.gz")
    """The code that its jobs run, if it was saved."""


@dataclass(frozen=True)
class Home:
    """The runs folder (`--runs DIR` or `GOALGRID_RUNS`), local or shared."""

    path: Path
    trials_folder = Below("trials")
    summaries = Below("summaries.parquet")
    """Cache of the record columns that tables read; refreshed when it is out of date."""
    replaced = Below("replaced")
    """The earlier folders of trials that were retrained."""
    trash = Below("trash")
    """Trials removed by `goalgrid prune`: one folder per call, with one subfolder per trial id."""
    features = Below("features")
    data = Below("data")
    """The content of data sets, with the stamp of the files that were read."""
    memory = Below("memory")
    """Measured GPU memory of each kind of trial on each GPU model."""
    mark = Below(".goalgrid")
    """Contains a random word, by which a node verifies that it sees this folder and not an empty mount point."""
    launches = Below("launches")
    mlflow = Below("mlflow.db")
    mlflow_files = Below("mlflow")
    """Artifacts of MLflow's runs."""
    tensorboard = Below("tensorboard")
    wandb = Below("wandb")

    def trial(self, trial_id: str) -> TrialFolder:
        return TrialFolder(self.trials_folder / trial_id)

    def grid(self, name: str) -> GridFolder:
        return GridFolder(self.path / "grids" / name)

    def grids(self) -> list[str]:
        """List the names of the grids that have run in this folder."""
        folders = [GridFolder(path) for path in sorted(self.path.glob("grids/*"))]
        return [folder.path.name for folder in folders if folder.grid.exists() or folder.trials.exists()]

    def trials(self) -> list[TrialFolder]:
        return [self.trial(trial_id) for trial_id in sorted(self.standing())]

    def standing(self) -> set[str]:
        """List the ids of trials that have a folder; raise a UserError if the folder of trials is unreadable."""
        try:
            with os.scandir(self.trials_folder) as entries:
                return {entry.name for entry in entries if _is_folder(entry) and not entry.name.startswith(".")}
        except FileNotFoundError:
            return set()
        except OSError as error:
            raise UserError(f"cannot read {self.trials_folder}: {error.strerror}. --runs DIR names another.") from error

    def states(self, ids: Iterable[str], ruled: Collection[str] = ()) -> dict[str, State]:
        """Return the states of these trials, by id; only folders of started trials are read.

        Args:
            ruled: ids of the trials that a rule may stop; any other stopped trial resumes and counts as interrupted.
        """
        standing = self.standing()
        states = {name: self.trial(name).state() if name in standing else State.PLANNED for name in ids}
        goes_on = [name for name, state in states.items() if state is State.STOPPED and name not in ruled]
        return states | dict.fromkeys(goes_on, State.INTERRUPTED)

    def stop_request(self, launch: str) -> Path:
        """Return the file whose existence asks the trials of this launch to write a checkpoint and end."""
        return self.launches / f"{launch}.stop"


class BeforeReplacement(Home):
    """A view of a runs folder with each trial as it was before it was last retrained."""

    def trial(self, trial_id: str) -> TrialFolder:
        """Return the latest folder in `replaced/` with this finished trial, or a folder that does not exist."""
        folders = [path for path in self.replaced.glob(f"{trial_id}-*") if (path / _DONE).exists()]
        return TrialFolder(max(folders, default=self.replaced / trial_id))

    def standing(self) -> set[str]:
        """List the ids of all trials that were retrained."""
        return {path.name.rpartition("-")[0] for path in self.replaced.glob("*-*")}


def _is_folder(entry: os.DirEntry[str]) -> bool:
    """Whether it is a folder; also True if that cannot be read, so that the trial's state is `unreadable`."""
    try:
        return entry.is_dir()
    except OSError:
        return True
