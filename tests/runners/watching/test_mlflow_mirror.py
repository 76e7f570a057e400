"""The MLflow mirror: a copy of the folders, complete, without doubles, and never in the way."""

import json
import math
import os
import shutil
import signal
import sqlite3
import threading
import time
import warnings
from base64 import b64encode
from collections.abc import Iterator
from datetime import datetime
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import ClassVar

import pytest

from goalgrid.grid.store.attempts import Failure
from goalgrid.grid.store.files import json_lines, write_json_lines
from goalgrid.grid.store.home import Home
from goalgrid.results.records import record
from goalgrid.runners.watching.mirror import Mirror, when_done
from goalgrid.runners.watching.mlflow_mirror import REPLACED, TAG, Mlflow

from ...conftest import Goalgrid
from ...goalgrid.processes import forked
from ...states import fail

pytestmark = pytest.mark.filterwarnings("ignore")  # MLflow and its dependencies warn of themselves


def runs_of(uri: str, experiment: str) -> list:  # type: ignore[type-arg]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from mlflow.tracking import MlflowClient

        client = MlflowClient(tracking_uri=uri)
        found = client.get_experiment_by_name(experiment)
        assert found
        return list(client.search_runs([found.experiment_id]))


def test_a_launch_mirrors_settings_epochs_and_results(trained: Home) -> None:
    runs = runs_of(f"sqlite:///{trained.mlflow}", "demo")
    assert sorted(run.data.tags[TAG] for run in runs) == sorted(p.name for p in (trained.path / "trials").iterdir())
    run = runs[0]
    assert run.info.status == "FINISHED"
    assert run.data.params["train.epochs"] == "2"
    assert {"val_rsum", "test_i2t_r1", "loss", "s_pos"} <= set(run.data.metrics)
    assert run.data.metrics["epoch"] == 2


@pytest.fixture
def uri(trained: Home, tmp_path: Path) -> str:
    """A database with MLflow's tables, which MLflow makes in seconds; it has no experiment `copy`."""
    return f"sqlite:///{shutil.copy(trained.mlflow, tmp_path / 'copy.db')}"


def test_mirroring_again_adds_nothing(trained: Home, tmp_path: Path, uri: str) -> None:
    warned: list[str] = []
    folders = [trained.trial(path.name) for path in sorted((trained.path / "trials").iterdir())]
    for _ in range(2):
        mirror = Mirror(Mlflow(Home(tmp_path), "copy", uri), warned.append)
        for folder in folders * 2:
            mirror.sync(folder)
        mirror.close()
    assert warned == []
    assert len(runs_of(uri, "copy")) == len(folders)


def test_runs_hold_every_epoch_and_result_of_the_folders(trained: Home, tmp_path: Path, uri: str) -> None:
    """Also where a value is not finite: of every metric the whole history and its latest value."""
    from mlflow.tracking import MlflowClient

    home, warned = Home(Path(shutil.copytree(trained.path, tmp_path / "runs"))), list[str]()
    history = home.trials()[0].history
    long = [
        row | {"epoch": epoch, "loss": float("nan")} for epoch in range(1, 51) for row in list(json_lines(history))[:1]
    ]
    write_json_lines(history, [*long[:-1], long[-1] | {"s_pos": float("inf")}])
    mirror = Mirror(Mlflow(Home(tmp_path), "copy", uri), warned.append)
    for folder in home.trials():
        mirror.sync(folder)
    mirror.close()
    assert warned == []
    client, runs = MlflowClient(tracking_uri=uri), {run.data.tags[TAG]: run for run in runs_of(uri, "copy")}
    assert len(runs) == 4
    for folder in home.trials():
        run, rows = runs[folder.trial_id], list(folder.rows())
        for name, latest in rows[-1].items():
            expected = [(row["epoch"], repr(stored(row[name]))) for row in rows]
            written = client.get_metric_history(run.info.run_id, name)
            assert sorted((metric.step, repr(metric.value)) for metric in written) == expected
            assert repr(run.data.metrics[name]) == repr(stored(latest))
        results = record.collect([folder.record], ["test_rsum", "test_t2i_r5"]).to_pylist()[0]
        assert {name: run.data.metrics[name] for name in results} == results
        assert run.info.run_name == folder.trial_id


def test_a_search_trial_that_diverged_has_not_failed(trained: Home, tmp_path: Path, uri: str) -> None:
    home, warned = Home(Path(shutil.copytree(trained.path, tmp_path / "runs"))), list[str]()
    first, third = (folder for folder in home.trials() if "_s0-" in folder.trial_id)
    second = next(folder for folder in home.trials() if "_s1-" in folder.trial_id)
    fail(first, Failure.NON_FINITE, "the loss became nan")
    fail(second, Failure.NON_FINITE, "the loss became nan")  # a trial of tables
    fail(third, Failure.BUG, "wrong")
    mirror = Mirror(Mlflow(Home(tmp_path), "copy", uri, search_seeds=[0]), warned.append)
    for folder in (first, second, third):
        mirror.sync(folder)
    mirror.close()
    status = {run.data.tags[TAG]: run.info.status for run in runs_of(uri, "copy")}
    assert (status, warned) == ({first.trial_id: "KILLED", second.trial_id: "FAILED", third.trial_id: "FAILED"}, [])


def stored(value: float) -> float:
    """How MLflow's database keeps a number: an infinite number as the largest finite one."""
    return 1.7976931348623157e308 if math.isinf(value) else float(value)


def mirrored(home: Home, to: Home, experiment: str) -> list[str]:
    """The warnings of a mirror of all trials to the database of a runs folder."""
    warned: list[str] = []
    mirror = Mirror(Mlflow(to, experiment), warned.append)
    for folder in home.trials():
        mirror.sync(folder)
    mirror.close()
    return warned


def test_a_database_whose_making_was_killed_is_made_by_the_next_launch(trained: Home, tmp_path: Path) -> None:
    from sqlalchemy import event
    from sqlalchemy.engine import Engine

    home, seen = Home(tmp_path), count()

    def killed() -> None:
        def kill(*_: object) -> None:
            if next(seen) == 40:  # of hundreds of statements
                os.kill(os.getpid(), signal.SIGKILL)

        event.listen(Engine, "before_cursor_execute", kill)
        Mlflow(home, "demo").open()

    assert os.waitstatus_to_exitcode(os.waitpid(forked(killed), 0)[1]) == -signal.SIGKILL
    assert mirrored(trained, home, "demo") == []
    assert len(runs_of(f"sqlite:///{home.mlflow}", "demo")) == 4


@pytest.mark.gate
def test_first_launches_at_once_all_mirror(trained: Home, tmp_path: Path) -> None:
    """Two of one grid, and one of another grid."""
    home, names = Home(tmp_path), ("demo", "demo", "other")

    def work(number: int) -> None:
        (tmp_path / f"warned-{number}").write_text("".join(mirrored(trained, home, names[number])))

    for pid in [forked(partial(work, number)) for number in range(3)]:
        assert os.waitpid(pid, 0)[1] == 0
    assert [(tmp_path / f"warned-{number}").read_text() for number in range(3)] == [""] * 3
    for name in names:
        assert {run.data.tags[TAG] for run in runs_of(f"sqlite:///{home.mlflow}", name)} == trained.standing()


def test_a_run_that_a_kill_cut_off_is_completed(trained: Home, tmp_path: Path, uri: str) -> None:
    """After a kill between its last metrics and its status, or before its tags."""
    from mlflow.tracking import MlflowClient

    folder, warned = trained.trials()[0], list[str]()
    for _ in range(2):
        mirror = Mirror(Mlflow(Home(tmp_path), "copy", uri), warned.append)
        mirror.sync(folder)
        mirror.close()
        (run,) = runs_of(uri, "copy")
        assert run.info.status == "FINISHED"
        assert run.data.tags["goalgrid.done"] == folder.done.read_text().strip()
        client = MlflowClient(tracking_uri=uri)
        client.update_run(run.info.run_id, status="RUNNING")
        client.delete_tag(run.info.run_id, "goalgrid.done")
    assert warned == []


def test_a_trial_that_is_trained_anew_gets_a_run_of_its_own(trained: Home, tmp_path: Path, uri: str) -> None:
    copy = Home(tmp_path / "runs")
    first = next((trained.path / "trials").iterdir())
    shutil.copytree(first, copy.trial(first.name).path)
    folder, warned = copy.trial(first.name), list[str]()
    for when in ("before", "after", "after"):
        folder.done.write_text(f"{when}\n")
        mirror = Mirror(Mlflow(Home(tmp_path), "copy", uri), warned.append)
        mirror.sync(folder)
        mirror.close()
    found = {run.data.tags["goalgrid.done"]: run.data.tags for run in runs_of(uri, "copy")}
    assert warned == []
    assert sorted(found) == ["after", "before"]
    assert found["after"][TAG] == found["before"][REPLACED] == first.name
    assert TAG not in found["before"]


def test_an_mlflow_that_is_down_costs_two_warnings(trained: Home, tmp_path: Path) -> None:
    warned: list[str] = []
    mirror = Mirror(Mlflow(Home(tmp_path), "demo", "http://127.0.0.1:9"), warned.append)
    for path in (trained.path / "trials").iterdir():
        mirror.sync(trained.trial(path.name))
    mirror.close()
    assert len(warned) == 2
    assert "training continues without it" in warned[0]
    assert "4 trials not copied to MLflow; the next run of this grid copies what is missing" in warned[1]


@pytest.mark.parametrize("place", ["a folder", "no disk for files"])
def test_a_database_that_cannot_be_written_is_warned_of_at_once(
    place: str, trained: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """MLflow alone would try for minutes."""
    from mlflow.store.db import utils

    def waited(seconds: float) -> None:
        pytest.fail(f"MLflow waits {seconds:.1f} s")

    monkeypatch.setattr(utils, "time", SimpleNamespace(sleep=waited))
    home = Home(Path("/proc/self/fdinfo") if place == "no disk for files" else tmp_path)
    if place == "a folder":
        home.mlflow.mkdir()
    warned = mirrored(trained, home, "demo")
    assert [warning for warning in warned if "unreachable" in warning and "file" in warning] == warned[:1], warned
    assert "4 trials not copied to MLflow" in warned[1]


@pytest.mark.parametrize("how", [pytest.param("locked", marks=pytest.mark.slow), "gone"])
def test_a_database_that_is_locked_or_gone_for_a_while_is_caught_up_with(
    how: str, trained: Home, tmp_path: Path, uri: str
) -> None:
    path = Path(uri.removeprefix("sqlite:///"))
    uri, warned = f"{uri}?timeout=0.1", list[str]()
    folders = [trained.trial(path.name) for path in sorted((trained.path / "trials").iterdir())]
    first = Mirror(Mlflow(Home(tmp_path), "copy", uri), warned.append)
    first.sync(folders[0])
    first.close()
    if how == "locked":
        lock = sqlite3.connect(path)
        lock.execute("BEGIN EXCLUSIVE")
    else:
        path.rename(tmp_path / "away.db")
        path.mkdir()
    second = Mirror(Mlflow(Home(tmp_path), "copy", uri), warned.append)
    second.sync(folders[1])
    until = time.monotonic() + 60
    while not warned and time.monotonic() < until:
        time.sleep(0.05)
    assert "unreachable" in warned[0]
    if how == "locked":
        lock.rollback()
        lock.close()
    else:
        path.rmdir()
        (tmp_path / "away.db").rename(path)
    for folder in folders[2:]:
        second.sync(folder)
    second.close()
    assert len(warned) == 1
    assert len(runs_of(uri, "copy")) == len(folders)


def test_a_trial_that_was_not_mirrored_is_mirrored_by_the_same_command(
    trained: Home, tmp_path: Path, goalgrid: Goalgrid
) -> None:
    """With nothing left to train: after a launch without MLflow, and after a damaged database was removed."""
    home = Home(Path(shutil.copytree(trained.path, tmp_path / "runs")))
    grid, uri = str(home.grid("demo").grid), f"sqlite:///{home.mlflow}"
    for file in (home.mlflow, home.grid("demo").mirrored):
        file.unlink()
    first = goalgrid("run", grid, "--here", runs=home.path)
    assert "copying 4 trials to MLflow" in first.stderr, first.stderr
    assert len(runs_of(uri, "demo")) == 4
    assert "MLflow" not in goalgrid("run", grid, "--here", runs=home.path).stderr
    cut = tmp_path / "cut.db"
    cut.write_bytes(home.mlflow.read_bytes()[:5000])
    damaged = goalgrid("run", grid, "--here", "--mlflow-uri", f"sqlite:///{cut}", runs=home.path)
    assert f"if {cut} is damaged, remove it" in damaged.stderr, damaged.stderr
    assert damaged.returncode == 0
    assert Mlflow(home, "demo").lacking(home.trials()) == []
    home.mlflow.unlink()
    assert Mlflow(home, "demo").lacking(home.trials()) == home.trials()


def test_a_run_begins_and_ends_as_its_own_trial_did(trained: Home, tmp_path: Path) -> None:
    """Not as the launch did, nor as its copy was made; its files lie in the runs folder."""
    shutil.copy(trained.mlflow, Home(tmp_path).mlflow)
    tracker, warned = Mlflow(Home(tmp_path), "copy"), list[str]()
    mirror = Mirror(tracker, warned.append)
    for folder in trained.trials():
        mirror.sync(folder)
    mirror.close()
    assert warned == []
    uri = tracker.place
    files = {path.name for path in (tmp_path / "mlflow" / "copy").rglob("*") if path.is_file()}
    assert files == {"settings.json", "environment.json", "history.jsonl", "record.parquet"}
    for run in runs_of(uri, "copy"):
        columns = ["finished_at", "train_seconds"]
        [made] = record.collect([trained.trial(run.info.run_name).record], columns).to_pylist()
        assert run.info.end_time == pytest.approx(1000 * datetime.fromisoformat(made["finished_at"]).timestamp(), abs=1)
        assert (run.info.end_time - run.info.start_time) / 1000 == pytest.approx(made["train_seconds"], abs=0.01)


def test_a_runs_duration_leaves_out_the_time_between_a_kill_and_the_resume(
    trained: Home, tmp_path: Path, uri: str
) -> None:
    whole = trained.trials()[0]
    cut = Home(tmp_path / "cut").trial(whole.trial_id)
    shutil.copytree(whole.path, cut.path)
    cut.done.unlink()
    write_json_lines(cut.history, list(json_lines(whole.history))[:1])
    os.utime(cut.settings, (1_700_000_000, 1_700_000_000))  # the first attempt began years ago
    for folder in (cut, whole):
        store = Mlflow(Home(tmp_path), "copy", uri).open()
        store.sync(folder)
    (run,) = runs_of(uri, "copy")
    [made] = record.collect([whole.record], ["train_seconds"]).to_pylist()
    assert run.info.start_time == 1_700_000_000_000
    assert (run.info.end_time - run.info.start_time) / 1000 == pytest.approx(made["train_seconds"], abs=0.01)


class TrackingServer(BaseHTTPRequestHandler):
    """As much of MLflow's server as a copy of one trial asks for."""

    seen: ClassVar[list[str]] = []

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.seen.append(self.headers.get("Authorization", ""))
        info = {"run_id": "a", "run_uuid": "a", "experiment_id": "1", "status": "RUNNING", "start_time": 1}
        answers = {
            "experiments/create": {"experiment_id": "1"},
            "runs/create": {"run": {"info": info, "data": {}}},
            "runs/update": {"run_info": info},
        }
        content = json.dumps(next((answer for path, answer in answers.items() if path in self.path), {})).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    do_GET = do_PATCH = do_POST  # noqa: N815

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture
def server() -> Iterator[int]:
    """The port of a server, which is gone after the test."""
    with ThreadingHTTPServer(("127.0.0.1", 0), TrackingServer) as found:
        threading.Thread(target=found.serve_forever, daemon=True).start()
        yield found.server_port
        found.shutdown()


@pytest.mark.gate
def test_a_password_reaches_the_server_and_nothing_else(
    trained: Home, tmp_path: Path, server: int, capfd: pytest.CaptureFixture[str]
) -> None:
    """Neither the runs folder, nor what is printed; MLflow prints an address for each run that ends."""
    warned, home = list[str](), Home(tmp_path / "runs")
    tracker = Mlflow(home, "copy", f"http://bob:S3CRET%40PW@127.0.0.1:{server}/?api_key=K3Y0FMINE")
    for uri in (tracker.uri, f"http://bob:S3CRET%40PW@127.0.0.1:{server}", "http://bob:S3CRET%40PW@127.0.0.1:9"):
        mirror = Mirror(Mlflow(home, "copy", uri), warned.append)
        mirror.sync(trained.trials()[0])
        mirror.close()
    printed = capfd.readouterr()
    assert f"Basic {b64encode(b'bob:S3CRET@PW').decode()}" in TrackingServer.seen
    assert "unreachable" in " ".join(warned)
    note = json.loads(home.grid("copy").mirrored.read_text())
    assert note["uri"] == f"http://***@127.0.0.1:{server}"
    assert list(note["done"]) == [trained.trials()[0].trial_id]
    assert printed.out == ""
    everything = [*warned, printed.err, *(path.read_text() for path in home.path.rglob("*") if path.is_file())]
    assert not [text for text in everything for secret in ("S3CRET", "K3Y0FMINE") if secret in text]


def test_what_is_copied_is_known_by_the_address_without_its_password(trained: Home, tmp_path: Path) -> None:
    home, done = Home(tmp_path), trained.trials()
    note = {"uri": "http://***@host", "done": {folder.trial_id: when_done(folder) for folder in done[:3]}}
    home.grid("demo").mirrored.parent.mkdir(parents=True)
    home.grid("demo").mirrored.write_text(json.dumps(note))
    assert Mlflow(home, "demo", "http://bob:new@host").lacking(done) == done[3:]
    assert Mlflow(home, "demo", "http://other").lacking(done) == done
