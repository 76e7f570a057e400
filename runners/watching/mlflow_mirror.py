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
import uuid
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from grid.store.files import read_json_lines
from grid.store.home import State, TrialFolder
from results.records import record

TAG = "goalgrid.trial"
DONE = "goalgrid.done"
"""When the trial that a run mirrors was done."""

RUN_NAME = "mlflow.runName"
"""MLflow's own."""

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

GATHER_SECONDS = 5.0
"""Trials that move on within so long are copied together."""

TOGETHER = 500
"""Finished trials that are written to a database in one transaction."""


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
        going = True
        while going:
            going = self._gather()
            if self._failed_at is None or time.monotonic() - self._failed_at > RETRY_SECONDS:
                self._catch_up()
        if self._behind and not self._catch_up():
            self.warn(f"{len(self._behind)} trials are not in MLflow; the next run of this grid copies them")

    def _gather(self) -> bool:
        """Wait for a trial that moved on, and a while for others; False when no more will come."""
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
            self._store = self._store or _Store(self.uri, self.experiment)
            behind = list(self._behind)
            for start in range(0, len(behind), TOGETHER):
                some = behind[start : start + TOGETHER]
                self._store.write(some)
                for folder in some:
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
        self.database = _Database.of(self.client)
        found = self.client.get_experiment_by_name(experiment)
        self.experiment = found.experiment_id if found else self.client.create_experiment(experiment)
        self.runs: dict[str, _Run] = {}
        """Of each trial."""
        for run in self._existing():
            epochs, tags = int(run.data.metrics.get("epoch", 0)), run.data.tags
            self.runs[tags[TAG]] = _Run(run.info.run_id, epochs, run.info.status == "FINISHED", tags.get(DONE, ""))

    def write(self, folders: Sequence[TrialFolder]) -> None:
        """Write the runs of the finished trials among these that have none yet, if MLflow's database is at hand."""
        whole = [folder for folder in folders if folder.trial_id not in self.runs and folder.done.exists()]
        if self.database and whole:
            runs = self.database.write([self._content(folder) for folder in whole], self.experiment)
            for folder, (run_id, epochs) in zip(whole, runs, strict=True):
                self.runs[folder.trial_id] = _Run(run_id, epochs, True, _when_done(folder))

    def sync(self, folder: TrialFolder) -> None:
        """Bring this trial's run up to what its folder holds."""
        if not folder.settings.exists():
            return
        run = self.runs.get(folder.trial_id)
        if run and run.finished and run.mirrors(folder, run.epochs):
            return
        rows = read_json_lines(folder.history)
        if run and not run.mirrors(folder, len(rows)):
            self._retire(run, folder)
            run = None
        run = run or self._create(folder)
        for row in rows[run.epochs :]:
            self.client.log_batch(run.id, metrics=self._metrics(_numbers(row), step=row["epoch"]))
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
        run = self.client.create_run(self.experiment, run_name=folder.trial_id, tags={TAG: folder.trial_id})
        params = [self.param(name, value) for name, value in _params(folder).items()]
        self.client.log_batch(run.info.run_id, params=params)
        return _Run(run.info.run_id)

    def _finish(self, run_id: str, folder: TrialFolder) -> None:
        row = _results(folder)
        self.client.log_batch(run_id, metrics=self._metrics(row, step=row["selected_epoch"]))
        self.client.set_tag(run_id, DONE, _when_done(folder))
        self.client.set_terminated(run_id, "FINISHED")

    def _metrics(self, values: dict[str, float], step: int) -> list[Any]:
        return [self.metric(name, float(value), 0, step) for name, value in values.items()]

    def _content(self, folder: TrialFolder) -> "_Content":
        rows, results = read_json_lines(folder.history), _results(folder)
        metrics = [each for row in rows for each in self._metrics(_numbers(row), step=row["epoch"])]
        metrics += self._metrics(results, step=results["selected_epoch"])
        tags = {TAG: folder.trial_id, DONE: _when_done(folder), RUN_NAME: folder.trial_id}
        return _Content(folder.trial_id, tags, _params(folder), metrics, len(rows))


@dataclass(frozen=True)
class _Content:
    """What a finished trial's run holds."""

    name: str
    tags: dict[str, str]
    params: dict[str, str]
    metrics: list[Any]
    epochs: int


class _Database:
    """MLflow's tables, where the tracking URI is a database: hundreds of finished runs in one transaction.

    Through MLflow's client each takes eleven transactions and 30 ms of a core, more than a short trial.
    """

    def __init__(self, store: Any, tables: Any, append: Callable[..., str]) -> None:
        self.store, self.tables, self.append = store, tables, append

    @classmethod
    def of(cls, client: Any) -> "_Database | None":
        """The client's database; None behind a server, or where this MLflow hides it."""
        try:
            from mlflow.store.tracking.dbmodels import models
            from mlflow.store.tracking.sqlalchemy_store import SqlAlchemyStore
            from mlflow.utils.uri import append_to_uri_path
        except ImportError:
            return None
        store = getattr(getattr(client, "_tracking_client", None), "store", None)
        return cls(store, models, append_to_uri_path) if isinstance(store, SqlAlchemyStore) else None

    def write(self, contents: Sequence[_Content], experiment: str) -> list[tuple[str, int]]:
        """Write these runs, all or none; the id and the epochs of each."""
        place, now = self.store.get_experiment(experiment).artifact_location, int(1000 * time.time())
        rows, tables = defaultdict[Any, list[dict[str, Any]]](list), self.tables
        written = []
        for content in contents:
            run_id = uuid.uuid4().hex
            artifacts = self.append(place, run_id, self.store.ARTIFACTS_FOLDER_NAME)
            said = {"name": content.name, "status": "FINISHED", "start_time": now, "end_time": now}
            fixed = {"source_type": "UNKNOWN", "user_id": "unknown", "lifecycle_stage": "active"}
            empty = dict.fromkeys(("source_name", "entry_point_name", "source_version"), "")
            metrics = [self._metric(metric) for metric in content.metrics]
            latest = {metric["key"]: metric for metric in sorted(metrics, key=lambda metric: metric["step"])}
            of_run: dict[Any, list[dict[str, Any]]] = {
                tables.SqlRun: [said | fixed | empty | {"artifact_uri": artifacts, "experiment_id": int(experiment)}],
                tables.SqlTag: [{"key": key, "value": value} for key, value in content.tags.items()],
                tables.SqlParam: [{"key": key, "value": value} for key, value in content.params.items()],
                tables.SqlMetric: metrics,
                tables.SqlLatestMetric: list(latest.values()),
            }
            for table, some in of_run.items():
                rows[table] += [row | {"run_uuid": run_id} for row in some]
            written.append((run_id, content.epochs))
        with self.store.engine.begin() as connection:
            for table, some in rows.items():
                connection.execute(table.__table__.insert(), some)
        return written

    def _metric(self, metric: Any) -> dict[str, Any]:
        is_nan, value = self.store.sanitize_metric_value(metric.value)
        step = {"timestamp": metric.timestamp, "step": metric.step}
        return {"key": metric.key, "value": value, "is_nan": is_nan, **step}


def _params(folder: TrialFolder) -> dict[str, str]:
    settings = json.loads(folder.settings.read_text(encoding="utf-8"))
    return {name: str(value) for name, value in flat(settings).items()}


def _numbers(row: dict[str, Any]) -> dict[str, float]:
    return {name: value for name, value in row.items() if isinstance(value, int | float)}


def _results(folder: TrialFolder) -> dict[str, Any]:
    names = [f"test_{name}" for name in record.METRICS]
    row: dict[str, Any] = record.collect([folder.record], [*names, "selected_epoch"]).to_pylist()[0]
    return row


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
