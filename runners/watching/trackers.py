"""The trackers of a grid, and those that are written as files: TensorBoard and Weights & Biases.

A killed launch may leave a truncated run. The next launch removes its folder and copies the trial again from its
history, so each trial has exactly one complete run.
"""

import logging
import os
import shutil
import time
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from goalgrid.grid import optional_dependencies
from goalgrid.grid.gridfile import Grid
from goalgrid.grid.store.files import read_json, readable_text, write_text
from goalgrid.grid.store.home import Home, TrialFolder
from goalgrid.runners.watching.mirror import Store, Tracker, dotted, final_metrics, start_time, when_done
from goalgrid.runners.watching.mlflow_mirror import Mlflow

COPIED = "goalgrid.done"
"""File in the folder of a complete run, with the time at which its trial finished."""


@dataclass(frozen=True)
class RunFiles(Tracker):
    """A tracker that writes files: a folder per trial, named by its id, below a folder named by the grid.

    Args:
        begin: opens a new run in an empty folder, given the trial's settings as nested tables.
    """

    name: str
    begin: "type[EventFile | OfflineRun]"
    place: Path
    search_seeds: Collection[int] = ()

    def open(self) -> "_Runs":
        return _Runs(self)

    def lacking(self, folders: Iterable[TrialFolder]) -> list[TrialFolder]:
        return [folder for folder in folders if folder.is_done() and not self.holds(folder)]

    def holds(self, folder: TrialFolder) -> bool:
        """Return whether the run of this finished trial is complete and up to date with its latest training."""
        note = self.place / folder.trial_id / COPIED
        return note.exists() and readable_text(note).strip() == when_done(folder)


@dataclass
class _Copy:
    """An open run, the number of its epochs, and the start time of the next epoch."""

    run: "EventFile | OfflineRun"
    when: float
    rows: list[dict[str, Any]] = field(default_factory=list)


@dataclass
class _Runs(Store):
    """The open runs of this launch."""

    tracker: RunFiles
    copies: dict[TrialFolder, _Copy] = field(default_factory=dict)

    def sync(self, folder: TrialFolder) -> None:
        done = when_done(folder)
        if not folder.settings.exists() or (done and self.tracker.holds(folder)):
            return
        rows, path = list(folder.rows()), self.tracker.place / folder.trial_id
        copy = self.copies.get(folder)
        if copy and [row["seconds"] for row in rows[: len(copy.rows)]] != [row["seconds"] for row in copy.rows]:
            # the trial started from scratch
            self.copies.pop(folder).run.close(done=False)
            copy = None
        if copy is None:
            if path.exists():
                shutil.rmtree(path)
            path.mkdir(parents=True)
            run = self.tracker.begin(path, read_json(folder.settings))
            copy = self.copies[folder] = _Copy(run, start_time(folder))
        for row in rows[len(copy.rows) :]:
            copy.when += row["seconds"]
            numbers = {name: value for name, value in row.items() if isinstance(value, int | float)}
            copy.run.write(numbers, row["epoch"], copy.when)
            copy.rows.append(row)
        if done:
            metrics = final_metrics(folder, self.tracker.search_seeds)
            copy.run.write(metrics, max(int(metrics["selected_epoch"]), len(copy.rows)), copy.when)
            self.copies.pop(folder).run.close(done=True)
            write_text(path / COPIED, f"{done}\n", durable=False)

    def close(self) -> None:
        for copy in self.copies.values():
            copy.run.close(done=False)


class EventFile:
    """A TensorBoard run, flushed every epoch: `tensorboard --logdir` on a grid's folder shows one run per trial."""

    def __init__(self, path: Path, settings: Mapping[str, Any]) -> None:
        from tensorboardX import SummaryWriter

        self.writer = SummaryWriter(str(path))
        self.settings = dotted(settings)
        self.split = "val"

    def write(self, metrics: Mapping[str, float], epoch: int, when: float) -> None:
        """Write the metrics of an epoch that ended at `when`, in seconds since 1970."""
        for name, value in metrics.items():
            self.writer.add_scalar(name, value, epoch, walltime=when)
        self.split = "test" if "test_rsum" in metrics else self.split  # a search trial has no test metrics here
        self.writer.flush()

    def close(self, *, done: bool) -> None:
        from tensorboardX.summary import hparams

        if done:  # the trials as rows of TensorBoard's page HParams, with their settings
            for summary in hparams(
                self.settings, {f"{self.split}_{name}": 0.0 for name in ("rsum", "i2t_r1", "t2i_r1")}
            ):
                self.writer.file_writer.add_summary(summary)
        self.writer.close()


FLUSH_SECONDS = 60.0
"""Timeout in seconds for W&B to write the end of a run."""


class OfflineRun:
    """An offline W&B run, in the project of its grid, with the trial's id."""

    def __init__(self, path: Path, settings: Mapping[str, Any]) -> None:
        os.environ.setdefault("WANDB_ERROR_REPORTING", "false")  # else it reports its errors to its makers
        import wandb

        logging.getLogger("wandb").setLevel(logging.CRITICAL)
        quiet = wandb.Settings(
            silent=True, console="off", disable_git=True, disable_code=True, disable_job_creation=True,
            x_disable_stats=True,
        )  # fmt: skip
        self.run = wandb.init(
            mode="offline", dir=str(path), project=path.parent.name, id=path.name, name=path.name,
            config=dict(settings), reinit="create_new", settings=quiet,
        )  # fmt: skip

    def write(self, metrics: Mapping[str, float], epoch: int, when: float) -> None:
        self.run.log({**metrics, "_timestamp": when}, step=epoch)

    def close(self, *, done: bool) -> None:
        """End the run; if complete, wait until it is on disk (W&B does not), or raise TimeoutError."""
        file = str(self.run.settings.sync_file)
        self.run.finish(exit_code=0 if done else 1)
        until = time.monotonic() + FLUSH_SECONDS
        while done and not _ended(file):
            if time.monotonic() > until:
                raise TimeoutError(f"W&B has not written the end of {file}")
            time.sleep(0.05)


def _ended(file: str) -> bool:
    """Return whether a run's file is complete; also True if this W&B version cannot read it, so as not to wait."""
    try:
        from wandb.proto.wandb_internal_pb2 import Record
        from wandb.sdk.internal.datastore import DataStore
    except ImportError:
        return True

    store, record = DataStore(), Record()
    store.open_for_scan(file)
    with suppress(AssertionError):  # a record that is half written
        while (data := store.scan_data()) is not None:
            record.ParseFromString(data)
            if record.HasField("exit"):
                return True
    return False


def trackers_of(grid: Grid, home: Home, mlflow_uri: str | None = None) -> list[Tracker]:
    """Return the trackers that a grid names; `mlflow_uri` overrides the MLflow server ('': no MLflow).

    Raises UserError if a package is missing.
    """
    trackers: list[Tracker] = []
    if mlflow_uri or (mlflow_uri is None and "mlflow" in grid.trackers):
        trackers.append(Mlflow(home, grid.name, mlflow_uri, grid.search_seeds))
    if "tensorboard" in grid.trackers:
        trackers.append(RunFiles("TensorBoard", EventFile, home.tensorboard / grid.name, grid.search_seeds))
    if "wandb" in grid.trackers:
        optional_dependencies.require(f"grid {grid.name!r}, by its trackers,", "wandb")
        trackers.append(RunFiles("W&B", OfflineRun, home.wandb / grid.name, grid.search_seeds))
    return trackers
