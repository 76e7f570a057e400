"""Trackers whose files the driver writes itself: a folder for each trial, written anew by every launch that copies it.

A launch that was killed leaves a run that is cut off anywhere. The next launch therefore removes the folder and copies
the trial from its history, which is short: a trial has one run, and that run is whole.
"""

import shutil
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from goalgrid.grid.store.files import read_json, readable_text, write_text
from goalgrid.grid.store.home import TrialFolder
from goalgrid.runners.watching.mirror import final_metrics, start_time, when_done

COPIED = "goalgrid.done"
"""File in the folder of a whole run, with the time at which its trial was done."""


class OpenRun(Protocol):
    """A run of a tracker, open for writing."""

    def write(self, metrics: Mapping[str, float], epoch: int, when: float) -> None:
        """Write metrics.

        Args:
            when: the end of the epoch, in seconds since 1970.
        """

    def close(self, *, done: bool) -> None: ...


@dataclass(frozen=True)
class RunFiles(ABC):
    """A tracker of files.

    Args:
        path: holds a folder for each trial.
        experiment: name of the grid.
    """

    path: Path
    experiment: str

    @property
    @abstractmethod
    def name(self) -> str: ...

    @abstractmethod
    def begin(self, path: Path, trial_id: str, settings: Mapping[str, Any]) -> OpenRun:
        """Open a new run in an empty folder; the settings are nested tables."""

    @property
    def place(self) -> str:
        return str(self.path)

    def open(self) -> "_Runs":
        return _Runs(self)

    def lacking(self, folders: Iterable[TrialFolder]) -> list[TrialFolder]:
        return [folder for folder in folders if folder.is_done() and not self.holds(folder)]

    def holds(self, folder: TrialFolder) -> bool:
        """Whether the run of this finished trial is whole, and of its latest training."""
        note = self.path / folder.trial_id / COPIED
        return note.exists() and readable_text(note).strip() == when_done(folder)

    def note(self, copied: Iterable[TrialFolder]) -> None:  # noqa: B027
        """Nothing: a run that is whole says so in its own folder."""

    def remedy(self) -> str:
        return f"; if {self.path} is damaged, remove it: that run makes it anew from the records"


@dataclass
class _Copy:
    """A run with its epochs, and the start time of the next epoch."""

    run: OpenRun
    when: float
    rows: list[dict[str, Any]] = field(default_factory=list)


@dataclass
class _Runs:
    """The runs that this launch has open."""

    tracker: RunFiles
    copies: dict[TrialFolder, _Copy] = field(default_factory=dict)

    def sync(self, folder: TrialFolder) -> None:
        done = when_done(folder)
        if not folder.settings.exists() or (done and self.tracker.holds(folder)):
            return
        rows, path = list(folder.rows()), self.tracker.path / folder.trial_id
        copy = self.copies.get(folder)
        if copy and [row["seconds"] for row in rows[: len(copy.rows)]] != [row["seconds"] for row in copy.rows]:
            # the trial started anew
            self.copies.pop(folder).run.close(done=False)
            copy = None
        if copy is None:
            if path.exists():
                shutil.rmtree(path)
            path.mkdir(parents=True)
            run = self.tracker.begin(path, folder.trial_id, read_json(folder.settings))
            copy = self.copies[folder] = _Copy(run, start_time(folder))
        for row in rows[len(copy.rows) :]:
            copy.when += row["seconds"]
            numbers = {name: value for name, value in row.items() if isinstance(value, int | float)}
            copy.run.write(numbers, row["epoch"], copy.when)
            copy.rows.append(row)
        if done:
            metrics = final_metrics(folder)
            copy.run.write(metrics, max(int(metrics["selected_epoch"]), len(copy.rows)), copy.when)
            self.copies.pop(folder).run.close(done=True)
            write_text(path / COPIED, f"{done}\n", durable=False)

    def close(self) -> None:
        for copy in self.copies.values():
            copy.run.close(done=False)
