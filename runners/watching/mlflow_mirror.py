"""The MLflow mirror, and the only file that imports MLflow: a copy of each trial's folder in an experiment.

The driver alone writes to MLflow, in a background thread. The folders are the truth: the mirror later catches up with
whatever it missed, and an MLflow that is down costs a warning and never a trial.
"""

import json
import logging
import os
import queue
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from grid.errors import UserError
from grid.store.files import read_json, readable_text, write_json
from grid.store.home import State, TrialFolder
from results.records import record

TAG = "goalgrid.trial"
"""Tag of a run: the id of the trial that it mirrors."""

DONE = "goalgrid.done"
"""Tag of a finished run: when its trial was done."""

REPLACED = "goalgrid.replaced"
"""Takes the place of TAG once the trial was trained anew and has another run."""

RETRY_SECONDS = 30.0
"""Pause after MLflow failed, before the mirror writes to it again."""

GATHER_SECONDS = 5.0
"""How long the mirror collects trials before it copies them: a trial that reports twice is copied once."""

ROWS = 20
"""Epochs that are copied in one call: MLflow takes at most 1,000 metrics."""


@dataclass(frozen=True)
class _Run:
    """What MLflow holds of a trial.

    Args:
        epochs: how many it holds.
        done: when the trial was done; empty while the run is not complete.
    """

    id: str
    epochs: int = 0
    done: str = ""

    def mirrors(self, folder: TrialFolder, epochs: int) -> bool:
        """Whether it mirrors what the folder holds now, and not an earlier training of the same trial."""
        if self.done:
            return folder.done.exists() and self.done == _when_done(folder)
        return self.epochs <= epochs


class Mirror:
    """Copies trials into MLflow in the background.

    Args:
        uri: of the tracking server or database.
        warn: called with the reason the first time that MLflow cannot be written, and once more if it stays so.
        held: file in which it notes the finished trials that MLflow holds, for `unmirrored`.
    """

    def __init__(self, uri: str, experiment: str, warn: Callable[[str], None], held: Path | None = None) -> None:
        self.uri, self.experiment, self.warn, self.held = uri, experiment, warn, held
        self._synced: dict[TrialFolder, None] = {}
        self._waiting: queue.Queue[TrialFolder | None] = queue.Queue()
        self._behind: dict[TrialFolder, None] = {}
        """Folders that hold more than MLflow does."""
        self._store: _Experiment | None = None
        self._failed_at: float | None = None
        self._thread = threading.Thread(target=self._work, name="mlflow", daemon=True)
        self._thread.start()

    def sync(self, folder: TrialFolder) -> None:
        """Have what this folder holds and MLflow lacks copied soon."""
        self._waiting.put(folder)

    def close(self) -> None:
        """Wait until everything is copied, or MLflow has failed once more."""
        self._waiting.put(None)
        self._thread.join()

    def _work(self) -> None:
        going = True
        while going:
            going = self._gather()
            if self._failed_at is None or time.monotonic() - self._failed_at > RETRY_SECONDS:
                self._catch_up()
        if self._behind and not self._catch_up():
            file = _database(self.uri)
            damaged = f"; if {file} is damaged, remove it: that run makes it anew from the records" if file else ""
            self.warn(f"{len(self._behind)} trials are not in MLflow; the next run of this grid copies them{damaged}")
        if self.held and self._synced:
            now = {folder.trial_id: _when_done(folder) for folder in self._synced if folder.done.exists()}
            with suppress(UserError):  # a full disk: the next run asks MLflow again
                write_json(self.held, {"uri": self.uri, "done": {**_held(self.held, self.uri), **now}}, durable=False)

    def _gather(self) -> bool:
        """Wait for a trial that reports, then a while for others; False once the mirror is closed."""
        folder = self._waiting.get()
        until = time.monotonic() + GATHER_SECONDS
        while folder is not None:
            self._behind[folder] = None
            try:
                folder = self._waiting.get(timeout=max(0.0, until - time.monotonic()))
            except queue.Empty:
                return True
        return False

    def _catch_up(self) -> bool:
        try:
            self._store = self._store or _Experiment(self.uri, self.experiment)
            for folder in list(self._behind):
                self._store.sync(folder)
                self._synced[folder] = self._behind.pop(folder)
        except Exception as error:  # MLflow raises many kinds of errors; none of them may touch the grid
            reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
            if self._failed_at is None:
                self.warn(f"MLflow at {self.uri} is out of reach, training goes on without it: {reason}")
            self._store, self._failed_at = None, time.monotonic()
        return not self._behind


def unmirrored(folders: Iterable[TrialFolder], uri: str, held: Path) -> list[TrialFolder]:
    """The finished trials of which no mirror noted that MLflow holds them; all of them if its database is gone."""
    file = _database(uri)
    known = {} if file and not file.exists() else _held(held, uri)
    return [folder for folder in folders if folder.done.exists() and known.get(folder.trial_id) != _when_done(folder)]


def _held(file: Path, uri: str) -> dict[str, str]:
    """When the trials that this MLflow holds were done, by id; empty without a readable note."""
    with suppress(OSError, ValueError, AttributeError):
        note = json.loads(readable_text(file))
        return dict(note["done"]) if note.get("uri") == uri else {}
    return {}


def _database(uri: str) -> Path | None:
    """The file of a database in a file; None for a server."""
    scheme, _, path = uri.partition(":///")
    return Path(path.partition("?")[0]) if scheme == "sqlite" else None


def _milliseconds(folder: TrialFolder) -> tuple[int, int | None]:
    """When the trial's training began, and when it was done; of a finished trial it took what its record says."""
    if not folder.done.exists():
        return int(1000 * folder.settings.stat().st_mtime), None
    made = record.collect([folder.record], ["finished_at", "train_seconds"]).to_pylist()[0]
    ended = datetime.fromisoformat(made["finished_at"]).timestamp()
    return int(1000 * (ended - made["train_seconds"])), int(1000 * ended)


class _Experiment:
    """An experiment of MLflow, with at most one run of each trial."""

    def __init__(self, uri: str, name: str) -> None:
        os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
        os.environ.setdefault("MLFLOW_LOGGING_LEVEL", "ERROR")
        os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "1")
        os.environ.setdefault("MLFLOW_HTTP_REQUEST_TIMEOUT", "10")
        logging.getLogger("alembic").setLevel(logging.ERROR)
        from mlflow.entities import Metric, Param, RunTag
        from mlflow.tracking import MlflowClient

        self.metric, self.param, self.tag = Metric, Param, RunTag
        self.client = MlflowClient(tracking_uri=uri)
        experiment = self.client.get_experiment_by_name(name)
        self.id = experiment.experiment_id if experiment else self.client.create_experiment(name)
        self.runs: dict[str, _Run] = {}
        """By the ids of their trials."""
        for run in self._existing():
            epochs, tags = int(run.data.metrics.get("epoch", 0)), run.data.tags
            complete = run.info.status == "FINISHED"  # the status is written last
            self.runs[tags[TAG]] = _Run(run.info.run_id, epochs, tags.get(DONE, "") if complete else "")

    def sync(self, folder: TrialFolder) -> None:
        """Copy what the folder holds and the trial's run lacks."""
        if not folder.settings.exists():
            return
        run = self.runs.get(folder.trial_id)
        if run and run.done and run.mirrors(folder, run.epochs):
            return
        rows = list(folder.rows())
        if run and not run.mirrors(folder, len(rows)):
            self.client.set_tag(run.id, REPLACED, folder.trial_id)
            self.client.delete_tag(run.id, TAG)
            run = None
        if run is None:
            begun, tags = _milliseconds(folder)[0], {TAG: folder.trial_id}
            created = self.client.create_run(self.id, begun, run_name=folder.trial_id, tags=tags)
            run = _Run(created.info.run_id)
        for start in range(run.epochs, max(len(rows), 1), ROWS):
            params = [] if start else self._params(folder)
            self.client.log_batch(run.id, self._metrics(rows[start : start + ROWS]), params)
        state = folder.state()
        if state is State.DONE:
            self._finish(run, folder)
        elif state is State.FAILED:
            self.client.set_tag(run.id, "goalgrid.error", folder.reason())
            self.client.set_terminated(run.id, "FAILED")
        elif run.epochs and state is State.RUNNING:
            self.client.update_run(run.id, status="RUNNING")
        self.runs[folder.trial_id] = _Run(run.id, len(rows), _when_done(folder) if state is State.DONE else "")

    def _existing(self) -> Iterable[Any]:
        token = None
        while True:
            page = self.client.search_runs([self.id], max_results=1000, page_token=token)
            yield from (run for run in page if TAG in run.data.tags)
            token = page.token
            if not token:
                return

    def _params(self, folder: TrialFolder) -> list[Any]:
        """The settings, by dotted names."""
        from pandas import json_normalize  # MLflow has imported pandas; a launch without MLflow does not

        settings = json_normalize(read_json(folder.settings), sep=".").to_dict("records")
        return [self.param(str(name), str(value)) for name, value in settings[0].items()]

    def _metrics(self, rows: list[dict[str, Any]]) -> list[Any]:
        """The numbers of these epochs."""
        return [
            self.metric(name, float(value), 0, row["epoch"])
            for row in rows
            for name, value in row.items()
            if isinstance(value, int | float)
        ]

    def _finish(self, run: _Run, folder: TrialFolder) -> None:
        names = [*(f"test_{name}" for name in record.METRICS), "selected_epoch"]
        results = record.collect([folder.record], names).to_pylist()[0]
        step = results["selected_epoch"]
        metrics = [self.metric(name, float(value), 0, step) for name, value in results.items()]
        self.client.log_batch(run.id, metrics, tags=[self.tag(DONE, _when_done(folder))])
        self.client.set_terminated(run.id, "FINISHED", _milliseconds(folder)[1])


def _when_done(folder: TrialFolder) -> str:
    return readable_text(folder.done).strip()
