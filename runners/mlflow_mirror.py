"""The MLflow mirror, and the only file that imports MLflow: each trial's folder, copied into an experiment.

The driver alone writes, in a thread of its own. Folders are the truth: a mirror that missed something catches up from
them, and an MLflow that is down costs one warning and never a trial.
"""

import json
import logging
import os
import queue
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from grid.files import read_json_lines
from grid.home import State, TrialFolder
from results import record

TAG = "goalgrid.trial"
DONE = "goalgrid.done"
"""When the trial that a run mirrors was done."""

REPLACED = "goalgrid.replaced"
"""On a run in place of TAG: its trial was trained anew, and has another run."""


@dataclass(frozen=True)
class _Run:
    """What MLflow holds of a trial: how many epochs, and whether and when it was done."""

    id: str
    epochs: int = 0
    finished: bool = False
    done: str = ""

    def mirrors(self, folder: TrialFolder, epochs: int) -> bool:
        """Whether it is of this folder, and not of one that stood there before the trial was trained anew."""
        if not self.finished:
            return self.epochs <= epochs
        return folder.done.exists() and self.done in ("", _when_done(folder))


RETRY_SECONDS = 30.0
"""After MLflow failed, it is left alone for so long."""


class Mirror:
    """Copies trials into MLflow in the background.

    Args:
        uri: of the tracking server or database.
        experiment: its name, the grid's.
        warn: called once, with what went wrong, if MLflow cannot be written; and once more if it stays so to the end.
    """

    def __init__(self, uri: str, experiment: str, warn: Callable[[str], None]) -> None:
        self.uri, self.experiment, self.warn = uri, experiment, warn
        self._waiting: queue.Queue[TrialFolder | None] = queue.Queue()
        self._behind: dict[TrialFolder, None] = {}
        """Folders that MLflow lacks something of."""
        self._store: _Store | None = None
        self._failed_at: float | None = None
        self._thread = threading.Thread(target=self._work, name="mlflow", daemon=True)
        self._thread.start()

    def sync(self, folder: TrialFolder) -> None:
        """Copy what this trial's folder holds and MLflow lacks, soon."""
        self._waiting.put(folder)

    def close(self) -> None:
        """Wait until everything is copied, or MLflow has failed once more."""
        self._waiting.put(None)
        self._thread.join()

    def _work(self) -> None:
        for folder in iter(self._waiting.get, None):
            self._behind[folder] = None
            if self._failed_at is None or time.monotonic() - self._failed_at > RETRY_SECONDS:
                self._catch_up()
        if self._behind and not self._catch_up():
            self.warn(f"{len(self._behind)} trials are not in MLflow; the next run of this grid copies them")

    def _catch_up(self) -> bool:
        try:
            self._store = self._store or _Store(self.uri, self.experiment)
            for folder in list(self._behind):
                self._store.sync(folder)
                del self._behind[folder]
        except Exception as error:  # MLflow raises many kinds; none of them may touch the grid
            reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
            if self._failed_at is None:
                self.warn(f"MLflow at {self.uri} is out of reach, training goes on without it: {reason}")
            self._store, self._failed_at = None, time.monotonic()
        return not self._behind


class _Store:
    """One experiment, and which run is each trial's."""

    def __init__(self, uri: str, experiment: str) -> None:
        os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
        os.environ.setdefault("MLFLOW_LOGGING_LEVEL", "ERROR")
        os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "1")
        os.environ.setdefault("MLFLOW_HTTP_REQUEST_TIMEOUT", "10")
        logging.getLogger("alembic").setLevel(logging.ERROR)
        from mlflow.entities import Metric, Param
        from mlflow.tracking import MlflowClient

        self.metric, self.param = Metric, Param
        self.client = MlflowClient(tracking_uri=uri)
        found = self.client.get_experiment_by_name(experiment)
        self.experiment = found.experiment_id if found else self.client.create_experiment(experiment)
        self.runs: dict[str, _Run] = {}
        """Of each trial."""
        for run in self._existing():
            epochs, tags = int(run.data.metrics.get("epoch", 0)), run.data.tags
            self.runs[tags[TAG]] = _Run(run.info.run_id, epochs, run.info.status == "FINISHED", tags.get(DONE, ""))

    def sync(self, folder: TrialFolder) -> None:
        """Bring this trial's run up to what its folder holds."""
        if not folder.settings.exists():
            return
        rows = read_json_lines(folder.history)
        run = self.runs.get(folder.trial_id)
        if run and not run.mirrors(folder, len(rows)):
            self._retire(run, folder)
            run = None
        run = run or self._create(folder)
        if run.finished:
            return
        for row in rows[run.epochs :]:
            metrics = {name: value for name, value in row.items() if isinstance(value, int | float)}
            self.client.log_batch(run.id, metrics=self._metrics(metrics, step=row["epoch"]))
        state = folder.state()
        if state is State.DONE:
            self._finish(run.id, folder)
        elif state is State.FAILED:
            self.client.set_tag(run.id, "goalgrid.error", folder.reason())
            self.client.set_terminated(run.id, "FAILED")
        elif run.epochs and state is State.RUNNING:
            self.client.update_run(run.id, status="RUNNING")
        done = state is State.DONE
        self.runs[folder.trial_id] = _Run(run.id, len(rows), done, _when_done(folder) if done else "")

    def _retire(self, run: _Run, folder: TrialFolder) -> None:
        """Keep the run of a trial that is trained anew, under another tag."""
        self.client.set_tag(run.id, REPLACED, folder.trial_id)
        self.client.delete_tag(run.id, TAG)

    def _existing(self) -> Iterable[Any]:
        token = None
        while True:
            page = self.client.search_runs([self.experiment], max_results=1000, page_token=token)
            yield from (run for run in page if TAG in run.data.tags)
            token = page.token
            if not token:
                return

    def _create(self, folder: TrialFolder) -> _Run:
        settings = json.loads(folder.settings.read_text(encoding="utf-8"))
        run = self.client.create_run(self.experiment, run_name=folder.trial_id, tags={TAG: folder.trial_id})
        params = [self.param(name, str(value)) for name, value in flat(settings).items()]
        self.client.log_batch(run.info.run_id, params=params)
        return _Run(run.info.run_id)

    def _finish(self, run_id: str, folder: TrialFolder) -> None:
        names = [f"test_{name}" for name in record.METRICS]
        row = record.collect([folder.record], [*names, "selected_epoch"]).to_pylist()[0]
        self.client.log_batch(run_id, metrics=self._metrics(row, step=row["selected_epoch"]))
        self.client.set_tag(run_id, DONE, _when_done(folder))
        self.client.set_terminated(run_id, "FINISHED")

    def _metrics(self, values: dict[str, float], step: int) -> list[Any]:
        return [self.metric(name, float(value), 0, step) for name, value in values.items()]


def _when_done(folder: TrialFolder) -> str:
    return folder.done.read_text(encoding="utf-8").strip()


def flat(settings: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested settings by dotted names.

    >>> flat({"train": {"lr": 0.1}, "seed": 0})
    {'train.lr': 0.1, 'seed': 0}
    """
    leaves: dict[str, Any] = {}
    for name, value in settings.items():
        leaves |= flat(value, f"{prefix}{name}.") if isinstance(value, dict) else {f"{prefix}{name}": value}
    return leaves
