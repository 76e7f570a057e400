"""The runs folder: where everything of a trial and of a grid stands, and what state a trial is in.

State is read from the disk and stored nowhere else; every path is a property of one object.
"""

import os
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from pathlib import Path

from grid.store.attempts import Attempt, attempts_in, live_in, names_in
from grid.store.failures import Failure

_SETTINGS, _ATTEMPTS, _ERROR, _DONE = "settings.json", "attempts", "error.txt", "done"
"""What a trial's folder holds, of which its state is told."""


class State(StrEnum):
    """What a trial's folder says of it."""

    PLANNED = "planned"
    RUNNING = "running"
    INTERRUPTED = "interrupted"
    FAILED = "failed"
    DONE = "done"


@dataclass(frozen=True)
class TrialFolder:
    """`runs/trials/<trial id>/`, shared by all grids."""

    path: Path

    @property
    def trial_id(self) -> str:
        return self.path.name

    def sibling(self, trial_id: str) -> "TrialFolder":
        """Another trial's folder of the same home."""
        return TrialFolder(self.path.parent / trial_id)

    @property
    def settings(self) -> Path:
        return self.path / _SETTINGS

    @property
    def environment(self) -> Path:
        return self.path / "environment.json"

    @property
    def vocabulary(self) -> Path:
        return self.path / "vocabulary.json"

    @property
    def history(self) -> Path:
        return self.path / "history.jsonl"

    @property
    def last_checkpoint(self) -> Path:
        return self.path / "last.ckpt"

    @property
    def previous_checkpoint(self) -> Path:
        """The one before the last."""
        return self.path / "previous.ckpt"

    @property
    def best_checkpoint(self) -> Path:
        return self.path / "best.ckpt"

    @property
    def record(self) -> Path:
        return self.path / "record.parquet"

    @property
    def error(self) -> Path:
        return self.path / _ERROR

    @property
    def attempts_folder(self) -> Path:
        return self.path / _ATTEMPTS

    def attempts(self) -> list[Attempt]:
        """All attempts at it, the first one first."""
        return attempts_in(self.attempts_folder)

    def latest(self) -> Attempt | None:
        return next(reversed(self.attempts()), None)

    @property
    def done(self) -> Path:
        """Written last: where it stands, the record is whole."""
        return self.path / _DONE

    def state(self) -> State:
        """Derived from which files stand here, by one look at them."""
        names = names_in(self.path)
        if _DONE in names:
            return State.DONE
        if _ATTEMPTS in names and live_in(self.attempts_folder):
            return State.RUNNING
        if _ERROR in names:
            return State.FAILED
        return State.INTERRUPTED if _SETTINGS in names else State.PLANNED

    def failure(self) -> Failure | None:
        """The class of a failed trial's last failure."""
        latest = self.latest()
        return latest.failure() if latest and self.error.exists() else None

    def reason(self) -> str:
        """The last line of a failed trial's error; empty for any other."""
        if not self.error.exists():
            return ""
        lines = self.error.read_text(encoding="utf-8").strip().splitlines()
        return lines[-1] if lines else "no message"


@dataclass(frozen=True)
class GridFolder:
    """`runs/grids/<grid name>/`."""

    path: Path

    @property
    def grid(self) -> Path:
        """The grid as it was last run, overrides included."""
        return self.path / "grid.toml"

    @property
    def trials(self) -> Path:
        return self.path / "trials.txt"

    @property
    def former(self) -> Path:
        """Ids of trials that the grid once had, and has no more."""
        return self.path / "former.txt"

    @property
    def probe(self) -> Path:
        """What a few steps of its trials cost, measured."""
        return self.path / "probe.json"

    @property
    def results(self) -> Path:
        return self.path / "results.parquet"

    @property
    def tables(self) -> Path:
        return self.path / "tables"

    @property
    def report(self) -> Path:
        return self.path / "report.html"

    def ids(self) -> list[str]:
        """Ids of its trials, as it was last run."""
        return _lines(self.trials)

    def former_ids(self) -> list[str]:
        return _lines(self.former)


@dataclass(frozen=True)
class Home:
    """goalgrid's home, `--runs DIR` or `GOALGRID_RUNS`: a local or shared folder."""

    path: Path

    @cached_property
    def trials_folder(self) -> Path:
        return self.path / "trials"

    def trial(self, trial_id: str) -> TrialFolder:
        return TrialFolder(self.trials_folder / trial_id)

    def grid(self, name: str) -> GridFolder:
        return GridFolder(self.path / "grids" / name)

    def grids(self) -> list[GridFolder]:
        """All grids that were run under this home."""
        found = [GridFolder(folder) for folder in sorted(self.path.glob("grids/*"))]
        return [folder for folder in found if folder.grid.exists() or folder.trials.exists()]

    def trials(self) -> list[TrialFolder]:
        """The folders of all trials, of whatever grid."""
        return [self.trial(trial_id) for trial_id in sorted(self.standing())]

    def standing(self) -> set[str]:
        """Ids of all trials that have a folder, of whatever grid, by one look at where they stand."""
        try:
            with os.scandir(self.trials_folder) as entries:
                return {entry.name for entry in entries if entry.is_dir() and not entry.name.startswith(".")}
        except (FileNotFoundError, NotADirectoryError):
            return set()

    @property
    def summaries(self) -> Path:
        """What tables read of many records: a copy, made anew where it is not right."""
        return self.path / "summaries.parquet"

    @property
    def replaced(self) -> Path:
        """Folders of trials that were trained anew, as they were before."""
        return self.path / "replaced"

    @property
    def features(self) -> Path:
        """Features of frozen backbones, shared by all trials."""
        return self.path / "features"

    @property
    def memory(self) -> Path:
        """What trials need of a GPU's memory, measured for each kind of them and each GPU."""
        return self.path / "memory"

    @property
    def mark(self) -> Path:
        """A random word, by which a node knows that it sees this folder and not an empty mount point."""
        return self.path / ".goalgrid"

    def stop_request(self, launch: str) -> Path:
        """Where it stands, the trials of this launch write a checkpoint and end."""
        return self.launches / f"{launch}.stop"

    @property
    def launches(self) -> Path:
        return self.path / "launches"

    @property
    def mlflow(self) -> Path:
        return self.path / "mlflow.db"


def _lines(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8").split() if path.exists() else []
