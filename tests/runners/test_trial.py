"""A trial from start to record: what it leaves, and how it fails."""

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pandas as pd
import pytest

from grid.expansion import Trial
from grid.home import Home, State, lease_content
from results import record
from runners import lease
from runners.events import Event
from runners.machine import Machine
from runners.trial import run_trial


def run(trial: Trial, home: Home, machine: Machine | None = None) -> tuple[State, list[Event]]:
    events: list[Event] = []
    return run_trial(trial.settings, home.trial(trial.id), events.append, machine or Machine()), events


def test_a_finished_trial_leaves_a_whole_record(tmp_path: Path, small_trial: Trial) -> None:
    state, events = run(small_trial, Home(tmp_path))
    folder = Home(tmp_path).trial(small_trial.id)
    assert state is folder.state() is State.DONE
    assert [event.kind for event in events] == ["started", "epoch", "epoch", "done"]
    row = pd.read_parquet(folder.record).iloc[0]
    assert row["trial_id"] == small_trial.id
    assert len(row["test_i2t_ranks"]) == 500
    assert len(row["test_t2i_ranks"]) == 2500
    assert (row["test_i2t_ranks"] < 1).mean() * 100 == row["test_i2t_r1"]
    assert row["test_rsum"] == sum(row[f"test_{d}_r{k}"] for d in ("i2t", "t2i") for k in (1, 5, 10))
    assert {item["name"] for item in row["history"]} >= {"loss", "s_pos", "s_neg", "active", "val_rsum", "lr"}
    assert 0 <= row["diagnostic_active"] <= 1
    assert row["diagnostic_spread"] > 0
    assert row["diagnostic_s_pos"] == next(
        item["value"] for item in row["history"] if (item["epoch"], item["name"]) == (row["selected_epoch"], "s_pos")
    )
    assert json.loads(row["settings"])["seed"] == 0
    assert json.loads(folder.vocabulary.read_text())[2:4] == ["a", "the"] or folder.vocabulary.exists()
    assert set(record.SCHEMA.names) == set(row.index)
    assert not folder.lease.exists()


def test_a_finished_trial_is_not_trained_again(tmp_path: Path, small_trial: Trial) -> None:
    run(small_trial, Home(tmp_path))
    before = Home(tmp_path).trial(small_trial.id).record.stat()
    state, events = run(small_trial, Home(tmp_path))
    assert state is State.DONE
    assert [event.kind for event in events] == ["done"]
    assert Home(tmp_path).trial(small_trial.id).record.stat().st_mtime_ns == before.st_mtime_ns


def test_a_trial_that_somebody_else_trains_is_left_alone(tmp_path: Path, small_trial: Trial) -> None:
    folder = Home(tmp_path).trial(small_trial.id)
    with lease.held(folder.lease):
        state, events = run(small_trial, Home(tmp_path))
    assert state is State.RUNNING
    assert events[0].kind == "busy"
    assert not folder.record.exists()


def test_the_lease_of_a_dead_process_is_taken_over(tmp_path: Path, small_trial: Trial) -> None:
    folder = Home(tmp_path).trial(small_trial.id)
    folder.path.mkdir(parents=True)
    process = subprocess.Popen(["true"])
    process.wait()
    folder.lease.write_text(json.dumps({**lease_content(), "pid": process.pid}))
    assert run(small_trial, Home(tmp_path))[0] is State.DONE


def test_a_data_problem_is_one_line_in_the_error_file(tmp_path: Path, small_trial: Trial) -> None:
    dataset = small_trial.settings.dataset.model_copy(update={"name": "flickr8k"})
    trial = Trial("t", small_trial.settings.model_copy(update={"dataset": dataset}))
    state, events = run(trial, Home(tmp_path), Machine(roots=(("flickr8k", str(tmp_path / "nowhere")),)))
    folder = Home(tmp_path).trial("t")
    assert state is folder.state() is State.FAILED
    assert events[-1].message == folder.reason()
    assert folder.error.read_text().startswith("root of data set 'flickr8k': no folder at")


def test_our_own_fault_leaves_its_traceback(tmp_path: Path, small_trial: Trial) -> None:
    model = small_trial.settings.model.model_copy(update={"dim": -1})
    trial = Trial("t", small_trial.settings.model_copy(update={"model": model}))
    assert run(trial, Home(tmp_path))[0] is State.FAILED
    folder = Home(tmp_path).trial("t")
    assert "Traceback" in folder.error.read_text()
    assert folder.reason().startswith("RuntimeError:")


@pytest.fixture
def tiny_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system that holds less than one checkpoint."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=200k", "tmpfs", str(folder)]
    if subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("mounting a small file system needs root")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


def test_a_full_disk_fails_the_trial_and_more_room_finishes_it(tiny_disk: Path, small_trial: Trial) -> None:
    home = Home(tiny_disk)
    (tiny_disk / "ballast").write_bytes(os.urandom(150_000))
    state, events = run(small_trial, home)
    assert state is State.FAILED
    assert "No space left on device" in events[-1].message
    subprocess.run(["mount", "-o", "remount,size=8m", str(tiny_disk)], check=True)
    assert run(small_trial, home)[0] is State.DONE
    assert home.trial(small_trial.id).state() is State.DONE
    assert not home.trial(small_trial.id).error.exists()
