"""The MLflow tracker: one experiment per grid, one run per trial. Only this file imports MLflow."""

import logging
import os
import re
import sqlite3
from collections.abc import Collection, Iterable, Mapping
from contextlib import closing, suppress
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from goalgrid.grid.errors import UserError
from goalgrid.grid.store.attempts import Failure
from goalgrid.grid.store.files import create, read_json, write_json
from goalgrid.grid.store.home import Home, State, TrialFolder
from goalgrid.runners.watching.mirror import Store, Tracker, dotted, final_metrics, is_search, start_time, when_done

TAG = "goalgrid.trial"
"""Tag of a run with the id of its trial."""

DONE = "goalgrid.done"
"""Tag of a finished run with the time at which its trial finished."""

REPLACED = "goalgrid.replaced"
"""Replaces TAG on the old run of a retrained trial, which gets a new run."""

MOST_RUNS = 50_000
"""Page size of MLflow's search for runs."""

ROWS = 20
"""Epochs copied per call, since MLflow accepts at most 1,000 metrics."""


_USER = re.compile(r"(?<=://)[^\s\"']*@")
"""Matches user and password in a URL, even if the password contains / or @."""
_SECRET = re.compile(r"([?&][^=&\s]*(?:pass|pwd|token|secret|key)[^=&\s]*=)([^&\s\"']*)", re.IGNORECASE)
"""Matches a secret query parameter of a URL, with its value."""


def public(text: str, uri: str = "") -> str:
    """Redact credentials in all URLs in a text, and every occurrence of the credentials of `uri`.

    >>> public("http://bob:s3cret@host/api?token=abc refused s3cret", "http://bob:s3cret@host")
    'http://***@host/api?token=*** refused ***'
    """
    users = [match[0][:-1] for match in _USER.finditer(uri)]
    secrets = [*users, *(user.partition(":")[2] for user in users), *(match[2] for match in _SECRET.finditer(uri))]
    for secret in [*secrets, *map(unquote, secrets)]:
        text = text.replace(secret, "***") if len(secret) > 3 else text  # else it would be in many words
    return _SECRET.sub(r"\1***", _USER.sub("***@", text))


@dataclass(frozen=True)
class _Run:
    """An MLflow run, the copy of a trial.

    Args:
        begun: start of the run, in milliseconds since 1970.
        epochs: number of epochs copied so far.
        done: time at which the trial finished; empty while the run is incomplete.
    """

    id: str
    begun: int
    epochs: int = 0
    done: str = ""


class Mlflow(Tracker):
    """An MLflow experiment, on a tracking server or in a database (default: the database in the runs folder).

    The password in a URI is only passed to MLflow; it is never written to the runs folder or shown in messages.
    """

    name = "MLflow"
    place: str

    def __init__(self, home: Home, experiment: str, uri: str | None = None, search_seeds: Collection[int] = ()) -> None:
        self.search_seeds = search_seeds
        self.uri = f"sqlite:///{home.mlflow.absolute()}" if uri is None else uri
        self.place = public(self.uri)
        self.experiment = experiment
        self.note_file = home.grid(experiment).mirrored
        """File that lists the finished trials already copied to MLflow."""
        self.artifacts = home.mlflow_files.absolute() / experiment if self.copies else None
        """Artifact folder; None: no files are copied."""

    def open(self) -> "_Experiment":
        return _Experiment(self)

    def lacking(self, folders: Iterable[TrialFolder]) -> list[TrialFolder]:
        """Return the finished trials that are not in the list of copies; all if MLflow's database is gone."""
        gone = self.copies and not self.copies.exists()
        note = {} if gone else read_json(self.note_file)
        known = note["done"] if note.get("uri") == self.place and isinstance(note.get("done"), dict) else {}
        return [folder for folder in folders if folder.is_done() and known.get(folder.trial_id) != when_done(folder)]

    def public(self, text: str) -> str:
        return public(text, self.uri)

    @property
    def copies(self) -> Path | None:
        scheme, _, path = self.uri.partition(":///")
        return Path(path.partition("?")[0]) if scheme == "sqlite" else None


def _make_database(file: Path) -> None:
    """Create MLflow's tables in a temporary file: this takes seconds, and a kill or another launch may interfere."""
    from mlflow.tracking import MlflowClient

    def make(aside: Path) -> None:
        _check_writable(aside)
        MlflowClient(tracking_uri=f"sqlite:///{aside}").search_experiments(max_results=1)

    file.parent.mkdir(parents=True, exist_ok=True)
    create(file, make)


def _check_writable(file: Path) -> None:
    """Raise SQLite's error at once if the file is not writable; MLflow would retry for minutes."""
    with closing(sqlite3.connect(file, isolation_level=None)) as database:
        database.execute("BEGIN IMMEDIATE")
        database.execute("CREATE TABLE goalgrid_check (never_kept)")  # closing undoes it


class _Experiment(Store):
    """An open MLflow experiment, with at most one run per trial."""

    def __init__(self, tracker: Mlflow) -> None:
        os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
        os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "1")
        os.environ.setdefault("MLFLOW_HTTP_REQUEST_TIMEOUT", "10")
        os.environ.setdefault("MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT", "true")  # stdout carries our table
        logging.getLogger("alembic").setLevel(logging.ERROR)
        from mlflow.entities import Metric, Param, RunTag
        from mlflow.tracking import MlflowClient

        logging.getLogger("mlflow").setLevel(logging.CRITICAL)  # it raises what it logs; its import sets a level
        self.metric, self.param, self.tag = Metric, Param, RunTag
        if tracker.copies and not tracker.copies.exists():
            _make_database(tracker.copies)
        elif tracker.copies:
            _check_writable(tracker.copies)
        self.tracker, self.client = tracker, MlflowClient(tracking_uri=tracker.uri)
        self.id = self._experiment(tracker.experiment, tracker.artifacts.as_uri() if tracker.artifacts else None)
        self.runs: dict[str, _Run] = {}
        """Runs by trial id."""
        for run in self.client.search_runs([self.id], max_results=MOST_RUNS):
            epochs, tags = int(run.data.metrics.get("epoch", 0)), run.data.tags
            if TAG in tags:
                done = tags.get(DONE, "") if run.info.status == "FINISHED" else ""  # the status is written last
                self.runs[tags[TAG]] = _Run(run.info.run_id, run.info.start_time, epochs, done)

    def _experiment(self, name: str, place: str | None) -> str:
        """Return the id of the experiment; creates it, even if another launch does so at the same time."""
        from mlflow.exceptions import MlflowException

        with suppress(MlflowException):  # it exists, or MLflow is out of reach, as the next call says
            return str(self.client.create_experiment(name, place))
        return str(self.client.get_experiment_by_name(name).experiment_id)

    def sync(self, folder: TrialFolder) -> None:
        """Copy the epochs and results that are missing in the trial's run."""
        if not folder.settings.exists():
            return
        run = self.runs.get(folder.trial_id)
        if run and run.done and run.done == when_done(folder):
            return
        rows = list(folder.rows())
        if run and (run.done or run.epochs > len(rows)):  # it mirrors an earlier training of the same trial
            self.client.set_tag(run.id, REPLACED, folder.trial_id)
            self.client.delete_tag(run.id, TAG)
            run = None
        if run is None:
            start, tags = round(1000 * start_time(folder)), {TAG: folder.trial_id}
            created = self.client.create_run(self.id, start, run_name=folder.trial_id, tags=tags)
            run = _Run(created.info.run_id, start)
        for first in range(run.epochs, max(len(rows), 1), ROWS):
            settings = {} if first else dotted(read_json(folder.settings))
            params = [self.param(name, str(value)) for name, value in settings.items()]
            metrics = [self._metrics(row, row["epoch"]) for row in rows[first : first + ROWS]]
            self.client.log_batch(run.id, list(chain(*metrics)), params)
        state = folder.state()
        end = run.begun + round(1000 * sum(row["seconds"] for row in rows))  # what training took, pauses left out
        if state is State.DONE:
            self._finish(run, folder, end)
        elif state is State.FAILED:
            diverged = is_search(folder, self.tracker.search_seeds) and folder.failure() is Failure.NON_FINITE
            self.client.set_tag(run.id, "goalgrid.error", folder.reason())
            self.client.set_terminated(run.id, "KILLED" if diverged else "FAILED", end)
        elif state is State.STOPPED:
            self.client.set_terminated(run.id, "KILLED", end)
        elif run.epochs and state is State.RUNNING:
            self.client.update_run(run.id, status="RUNNING")
        done = when_done(folder) if state is State.DONE else ""
        self.runs[folder.trial_id] = _Run(run.id, run.begun, len(rows), done)

    def close(self) -> None:
        """Write the list of the finished trials."""
        done = {trial_id: run.done for trial_id, run in self.runs.items() if run.done}
        with suppress(UserError):  # a full disk: the next run asks MLflow again
            write_json(self.tracker.note_file, {"uri": self.tracker.place, "done": done}, durable=False)

    def _metrics(self, values: Mapping[str, Any], epoch: int) -> list[Any]:
        numbers = {name: value for name, value in values.items() if isinstance(value, int | float)}
        return [self.metric(name, float(value), 0, epoch) for name, value in numbers.items()]

    def _finish(self, run: _Run, folder: TrialFolder, end: int) -> None:
        searched = is_search(folder, self.tracker.search_seeds)
        for file in (folder.settings, folder.environment, folder.history, *([] if searched else [folder.record])):
            if self.tracker.artifacts and file.exists():  # an ensemble has no history
                self.client.log_artifact(run.id, str(file))
        metrics = final_metrics(folder, self.tracker.search_seeds)
        measured = self._metrics(metrics, int(metrics["selected_epoch"]))
        self.client.log_batch(run.id, measured, tags=[self.tag(DONE, when_done(folder))])
        self.client.set_terminated(run.id, "FINISHED", end)
