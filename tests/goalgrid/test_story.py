"""Stories, as a user lives them: declare, run, kill, run again, look, export. Real Ray, real signals, real files."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pandas as pd
import psutil
import pytest

from grid.home import Home

from ..conftest import ROOT, SMALL, Goalgrid, read_status

AXES = ("--set", 'objectives=["con_con","sig-ms_cir"]', "--set", "seeds=[0,1]")
LONGER = (*SMALL, "--set", "train.epochs=8")


def start(*arguments: str, runs: Path) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "goalgrid", *arguments]
    environment = {**os.environ, "GOALGRID_RUNS": str(runs)}
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return subprocess.Popen(command, **streams, text=True, env=environment, cwd=ROOT, start_new_session=True)


def wait_for_done(runs: Path, count: int, process: subprocess.Popen[str]) -> set[Path]:
    """Wait until so many trials are done and one is on its way."""
    until = time.monotonic() + 120
    while time.monotonic() < until and process.poll() is None:
        done = set((runs / "trials").glob("*/done"))
        if len(done) >= count and len(list((runs / "trials").glob("*/lease.json"))) > 0:
            return done
        time.sleep(0.05)
    raise AssertionError(f"never {count} done: {process.communicate()[1] if process.poll() is not None else 'timeout'}")


def test_running_a_finished_grid_starts_nothing(trained: Home, goalgrid: Goalgrid) -> None:
    before = {path: path.stat().st_mtime_ns for path in (trained.path / "trials").rglob("*")}
    again = goalgrid("run", "demo", *AXES, *SMALL, runs=trained.path, timeout=30)
    assert again.returncode == 0
    assert "P^sig-ms" in again.stdout
    assert {path: path.stat().st_mtime_ns for path in (trained.path / "trials").rglob("*")} == before


@pytest.mark.parametrize("how", ["ctrl-c", "kill -9"])
def test_a_killed_grid_is_completed_without_training_anything_twice(
    how: str, tmp_path: Path, goalgrid: Goalgrid
) -> None:
    process = start("run", "demo", *AXES, *LONGER, "--mlflow-uri", "", runs=tmp_path)
    wait_for_done(tmp_path, 1, process)
    assert listening_addresses(process) <= {"127.0.0.1", "::1", "::ffff:127.0.0.1"}
    if how == "ctrl-c":
        os.killpg(process.pid, signal.SIGINT)  # as a terminal does: to the whole group
        _, talk = process.communicate(timeout=60)
        assert process.returncode == 3, talk
        assert "Traceback" not in talk
    else:
        process.kill()
        process.communicate(timeout=60)
    done = {path: path.stat().st_mtime_ns for path in (tmp_path / "trials").glob("*/done")}
    records = {path.parent.name: (path.parent / "record.parquet").read_bytes() for path in done}
    assert 1 <= len(done) < 4
    wait_for_workers_to_die(tmp_path)

    again = goalgrid("run", "demo", *AXES, *LONGER, "--mlflow-uri", "", runs=tmp_path)
    assert again.returncode == 0, again.stderr
    assert f"training {4 - len(done)}" in again.stderr
    assert {path: path.stat().st_mtime_ns for path in done} == done
    assert all((tmp_path / "trials" / name / "record.parquet").read_bytes() == old for name, old in records.items())
    assert len(pd.read_parquet(tmp_path / "grids" / "demo" / "results.parquet")) == 4


def wait_for_workers_to_die(runs: Path) -> None:
    """Ray's workers notice within seconds that their driver is gone; until then they hold their leases."""
    until = time.monotonic() + 30
    while time.monotonic() < until:
        leases = [json.loads(path.read_text() or "{}") for path in (runs / "trials").glob("*/lease.json")]
        if not any(psutil.pid_exists(lease.get("pid", -1)) for lease in leases):
            return
        time.sleep(0.2)
    raise AssertionError("a worker outlived its driver by 30 s")


def listening_addresses(process: subprocess.Popen[str]) -> set[str]:
    """Where a process and all its children wait for connections."""
    family = [psutil.Process(process.pid), *psutil.Process(process.pid).children(recursive=True)]
    connections = [connection for member in family for connection in member.net_connections("inet")]
    return {connection.laddr.ip for connection in connections if connection.status == psutil.CONN_LISTEN}


def test_in_process_and_through_ray_give_the_same_numbers(trained: Home, tmp_path: Path, goalgrid: Goalgrid) -> None:
    only = ("--only", "objective=sig-ms_cir seed=1", "--here", "--mlflow-uri", "")
    finished = goalgrid("run", "demo", *AXES, *SMALL, *only, runs=tmp_path)
    assert finished.returncode == 0, finished.stderr
    record = next((tmp_path / "trials").glob("*/record.parquet"))
    here, ray = (pd.read_parquet(home.trial(record.parent.name).record) for home in (Home(tmp_path), trained))
    metrics = [column for column in here if column.startswith(("val_", "test_")) and "ranks" not in column]
    assert here[metrics].equals(ray[metrics])
    assert (here["test_t2i_ranks"][0] == ray["test_t2i_ranks"][0]).all()


def test_a_failing_trial_never_stops_the_others(tmp_path: Path, goalgrid: Goalgrid) -> None:
    axes = ("--set", 'objectives=["con_con"]', "--set", "seeds=[0,1]")
    plan = goalgrid("plan", "demo", *axes, *SMALL, "--json", runs=tmp_path)
    first = json.loads(plan.stdout)["left"][0]
    (tmp_path / "trials" / first / "vocabulary.json").mkdir(parents=True)  # cannot be replaced by a file
    finished = goalgrid("run", "demo", *axes, *SMALL, "--mlflow-uri", "", runs=tmp_path)
    assert finished.returncode == 4
    assert "goalgrid resume demo --only 'seed=0' --here" in finished.stderr
    status = goalgrid("status", "demo", "--json", runs=tmp_path)
    assert status.returncode == 4
    assert read_status(status) == {"planned": 0, "running": 0, "interrupted": 0, "failed": 1, "done": 1}
    (tmp_path / "trials" / first / "vocabulary.json").rmdir()
    resumed = goalgrid("resume", "demo", "--failed", "--here", "--mlflow-uri", "", runs=tmp_path)
    assert resumed.returncode == 0, resumed.stderr


def test_a_seed_added_trains_only_what_is_new(tmp_path: Path, goalgrid: Goalgrid) -> None:
    common = (*SMALL, "--here", "--mlflow-uri", "", "--set", 'objectives=["con_con"]')
    goalgrid("run", "demo", *common, "--set", "seeds=[0]", runs=tmp_path)
    grown = goalgrid("run", "demo", *common, "--set", "seeds=[0,1]", runs=tmp_path)
    assert "2 trials: 1 done, 1 planned; training 1" in grown.stderr
    assert "(" not in grown.stdout.split("P^con")[1].splitlines()[0]


def test_features_and_photographs_of_flickr8k_both_train(flickr8k: Path, tmp_path: Path, goalgrid: Goalgrid) -> None:
    common = ("--root", str(flickr8k), "--set", 'objectives=["sig-ms_cir"]', "--set", "train.epochs=1", "--here")
    small = ("--set", "model.dim=64", "--set", "train.batch_size=512", "--mlflow-uri", "")
    for recipe in ("fc-bow", "cnn-bow"):
        extra = (
            "--set",
            f'recipes=["{recipe}"]',
            *(("--set", "model.image.channels=4") if recipe == "cnn-bow" else ()),
        )
        finished = goalgrid("run", "flickr8k", *common, *small, *extra, runs=tmp_path)
        assert finished.returncode == 0, finished.stderr
    frame = pd.concat(pd.read_parquet(path) for path in (tmp_path / "trials").glob("*/record.parquet"))
    assert set(frame["recipe"]) == {"fc-bow", "cnn-bow"}
    assert all(len(ranks) == 1000 for ranks in frame["test_i2t_ranks"])


def test_an_export_stands_on_its_own(trained: Home, tmp_path: Path, goalgrid: Goalgrid) -> None:
    target = tmp_path / "paper"
    assert goalgrid("export", "demo", str(target), runs=trained.path).returncode == 0
    check = subprocess.run(["sha256sum", "-c", "SHA256SUMS"], cwd=target, capture_output=True, text=True)
    assert check.returncode == 0, check.stdout
    assert len(pd.read_parquet(target / "records.parquet")) == 4
    assert {path.suffix for path in (target / "tables").iterdir()} == {".tex", ".md", ".csv", ".parquet"}
    assert goalgrid("plan", str(target / "grid.toml"), runs=trained.path).stdout.startswith("demo: 4 trials: 4 done")
    refused = goalgrid("export", "demo", str(target), runs=trained.path)
    assert refused.returncode == 2
    assert "is not empty" in refused.stderr
