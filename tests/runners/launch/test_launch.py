"""A launch: in which order it trains, beside leases of other machines that look dead."""

import io
import json
import os
import time
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from rich.console import Console

from goalgrid.grid.expansion import expand, trials_of
from goalgrid.grid.gridfile import Grid, load
from goalgrid.grid.store.home import Home, State
from goalgrid.results.records import record_cache
from goalgrid.runners.launch import LaunchOptions
from goalgrid.runners.launch.launch import Launch
from goalgrid.runners.trial import holding

from ...conftest import SMALL


def three() -> Grid:
    """A grid of three trials, as small as they can be."""
    small = [word for word in SMALL if word != "--set"]
    return load("demo", [*small, 'objectives=["con_con"]', "seeds=[0,1,2]", "train.epochs=1", "train.batch_size=1000"])


def test_a_launch_copies_what_tables_read_of_its_records(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record_cache, "FEW", 2)
    grid = three()
    cells, home = expand(grid), Home(tmp_path)
    Launch(home, Console(file=io.StringIO()), LaunchOptions(here=True)).run(grid, cells, trials_of(cells))
    copied = pq.read_table(home.summaries)["trial_id"].to_pylist()
    assert len(copied) == 2
    assert set(copied) < {trial.id for trial in trials_of(cells)}


def test_trials_of_silent_machines_come_last_and_are_watched_all_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(holding, "WATCH_SECONDS", 1.5)
    grid = three()
    cells, home, console = expand(grid), Home(tmp_path), Console(file=io.StringIO())
    trials = trials_of(cells)
    for trial in trials[:2]:
        folder = home.trial(trial.id)
        folder.attempts_folder.mkdir(parents=True)
        lease = {"machine": "elsewhere", "pid": 1, "started": 1.0, "heartbeat": time.time() - 3600}
        (folder.attempts_folder / "001.json").write_text(json.dumps(lease))
        os.utime(folder.attempts_folder / "001.json", (0, 0))
    Launch(home, console, LaunchOptions(here=True)).run(grid, cells, trials)
    folders = [home.trial(trial.id) for trial in trials]
    assert [folder.state() for folder in folders] == [State.DONE] * 3
    assert [folder.attempts()[0].outcome() for folder in folders] == ["killed", "killed", "done"]
    assert min(folders, key=lambda folder: folder.record.stat().st_mtime_ns) == folders[2]
    began = [folder.attempts()[-1].lease.stat().st_mtime for folder in folders[:2]]
    assert abs(began[0] - began[1]) < 1.5, "the second was watched with the first"
