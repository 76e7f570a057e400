"""Stories, as a user lives them: declare, run, kill, run again, look, export. Real Ray, real signals, real files."""

import shutil
import subprocess
from pathlib import Path

import pandas as pd
import pytest

from goalgrid.grid.store.home import Home

from ..conftest import SMALL, Goalgrid, read_status

AXES = ("--set", 'objectives=["con_con","sig-ms_cir"]', "--set", "seeds=[0,1]")


def test_running_a_finished_grid_starts_nothing(trained: Home, goalgrid: Goalgrid) -> None:
    before = {path: path.stat().st_mtime_ns for path in (trained.path / "trials").rglob("*")}
    again = goalgrid("run", "demo", *AXES, *SMALL, runs=trained.path, timeout=30)
    assert again.returncode == 0
    assert "P^sig-ms" in again.stdout
    assert {path: path.stat().st_mtime_ns for path in (trained.path / "trials").rglob("*")} == before


@pytest.mark.gate
def test_on_a_read_only_disk_a_finished_grid_shows_its_table_and_keeps_none(
    trained: Home, tiny_disk: Path, goalgrid: Goalgrid
) -> None:
    subprocess.run(["mount", "-o", "remount,size=64m", str(tiny_disk)], check=True)
    shutil.copytree(trained.path, tiny_disk / "runs")
    subprocess.run(["mount", "-o", "remount,ro", str(tiny_disk)], check=True)
    again = goalgrid("run", "demo", *AXES, *SMALL, runs=tiny_disk / "runs")
    assert again.returncode == 0, again.stderr
    assert "P^sig-ms" in again.stdout
    assert "warning: the table was not saved: cannot write" in again.stderr
    assert "written:" not in again.stderr
    refused = goalgrid("table", "demo", "--format", "latex", "--output", str(tiny_disk / "a.tex"), runs=trained.path)
    assert refused.returncode == 2
    assert "Read-only file system" in refused.stderr


def test_a_failing_trial_never_stops_the_others(tmp_path: Path, goalgrid: Goalgrid) -> None:
    """A learning rate that spoils the weights: reported at once, since another try would give the same."""
    axes = ("--set", 'objectives=["con_con"]', "--set", "seeds=[0]", "--set", "sweep.train.lr=[1e30,2e-3]")
    words = "$GOALGRID_EVENT $GOALGRID_STATE $GOALGRID_FAILED of $GOALGRID_TRIALS: $GOALGRID_MESSAGE"
    tell = f'echo "{words}" >> {tmp_path}/told'
    here = ("--here", "--mlflow-uri", "", "--notify", tell)
    finished = goalgrid("run", "demo", *axes, *SMALL, *here, runs=tmp_path)
    assert finished.returncode == 4
    first, last = (tmp_path / "told").read_text().splitlines()
    assert first.startswith("failed running 1 of 2: shapes_cnn-bow_con_con")
    assert last == "ended failed 1 of 2: demo: 2 trials: 1 done, 1 failed"
    assert "non-finite: the loss became nan at step 2" in finished.stderr
    assert "goalgrid resume demo --only 'train.lr=1e+30 seed=0' --here" in finished.stderr
    tables, results = (tmp_path / "grids" / "demo" / name for name in ("tables", "results.parquet"))
    named = f"written: {tables} (Parquet, LaTeX, Markdown, ...) and {results}"
    assert finished.stderr.splitlines()[-1] == named
    status = goalgrid("status", "demo", "--json", runs=tmp_path)
    assert status.returncode == 4
    assert {state: count for state, count in read_status(status).items() if count} == {"failed": 1, "done": 1}
    resumed = goalgrid("resume", "demo", "--failed", "--here", "--mlflow-uri", "", runs=tmp_path)
    assert "training 1" in resumed.stderr
    assert resumed.returncode == 4


def test_a_seed_added_trains_only_what_is_new(tmp_path: Path, goalgrid: Goalgrid) -> None:
    common = (*SMALL, "--here", "--mlflow-uri", "", "--set", 'objectives=["con_con"]')
    goalgrid("run", "demo", *common, "--set", "seeds=[0]", runs=tmp_path)
    grown = goalgrid("run", "demo", *common, "--set", "seeds=[0,1]", runs=tmp_path)
    assert "2 trials: 1 done, 1 planned; training 1" in grown.stderr
    assert "(" not in grown.stdout.split("P^con")[1].splitlines()[0]


@pytest.mark.slow
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
