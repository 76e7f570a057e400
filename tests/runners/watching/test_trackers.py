"""TensorBoard and W&B: after a kill and a resume a run for each trial, with every epoch and the record's metrics."""

import json
import pickle
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from goalgrid.grid.errors import UserError
from goalgrid.grid.gridfile import load
from goalgrid.grid.store.home import Home, TrialFolder
from goalgrid.runners.watching import trackers
from goalgrid.runners.watching.mirror import Mirror, final_metrics
from goalgrid.runners.watching.trackers import EventFile, OfflineRun, RunFiles, trackers_of

pytestmark = pytest.mark.filterwarnings("ignore")  # the trackers and their dependencies warn of themselves

Points = dict[str, dict[int, float]]
"""Of every metric, its values by epoch."""


def of_tensorboard(path: Path) -> Points:
    """What TensorBoard itself reads in the folder of a trial."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    assert len(list(path.glob("events.*"))) == 1
    reader = EventAccumulator(str(path)).Reload()
    return {name: {event.step: event.value for event in reader.Scalars(name)} for name in reader.Tags()["scalars"]}


def of_wandb(path: Path) -> Points:
    """What W&B's own reader finds in the one offline run of a trial."""
    from wandb.proto.wandb_internal_pb2 import Record
    from wandb.sdk.internal.datastore import DataStore

    [file] = path.glob("wandb/offline-run-*/*.wandb")
    store, points = DataStore(), Points()
    store.open_for_scan(str(file))
    while (data := store.scan_data()) is not None:
        content = Record()
        content.ParseFromString(data)
        for item in content.history.item:
            name = item.key or ".".join(item.nested_key)
            points.setdefault(name, {})[content.history.step.num] = json.loads(item.value_json)
    return points


@pytest.fixture(params=[(EventFile, of_tensorboard), (OfflineRun, of_wandb)], ids=["tensorboard", "wandb"])
def tracker(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[RunFiles, Callable[[Path], Points]]:
    kind, read = request.param
    if kind is OfflineRun:
        pytest.importorskip("wandb", reason="pip install 'goalgrid[wandb]'")
    return RunFiles("copies", kind, tmp_path / "copies"), read


KILLED = """
import os, pickle, signal, sys
tracker, folder = pickle.load(sys.stdin.buffer)
tracker.open().sync(folder)
os.kill(os.getpid(), signal.SIGKILL)
"""
"""Copies a trial, and dies with its run open. A fork of a process with threads of libraries may die before."""


def copied(tracker: RunFiles, *folders: TrialFolder) -> None:
    warned = list[str]()
    mirror = Mirror(tracker, warned.append)
    for folder in folders:
        mirror.sync(folder)
    mirror.close()
    assert warned == []


@pytest.mark.gate
def test_a_trial_has_one_run_with_its_epochs_and_the_records_metrics_after_a_kill(
    trained: Home, tmp_path: Path, tracker: tuple[RunFiles, Callable[[Path], Points]]
) -> None:
    """A launch copied the first epoch and was killed; the next one completes the trial; a third copies nothing."""
    files, read = tracker
    whole, name = trained.trials()[0], trained.trials()[0].trial_id
    cut = Home(tmp_path / "cut").trial(name)
    shutil.copytree(whole.path, cut.path)
    rows = whole.history.read_text().splitlines(keepends=True)
    cut.done.unlink()
    cut.history.write_text(rows[0])
    launch = subprocess.run([sys.executable, "-c", KILLED], input=pickle.dumps((files, cut)))
    assert launch.returncode == -signal.SIGKILL
    assert files.lacking([whole]) == [whole]
    for _ in range(2):
        copied(files, whole)
        assert files.lacking([whole]) == []
    points = read(files.place / name)
    for row in map(json.loads, rows):
        assert all(points[key][row["epoch"]] == pytest.approx(row[key], rel=1e-6) for key in ("loss", "val_rsum"))
    measured = {key: list(points[key].values()) for key in final_metrics(whole, None)}
    assert measured == {key: [pytest.approx(value, rel=1e-6)] for key, value in final_metrics(whole, None).items()}
    assert sorted(path.name for path in files.place.iterdir()) == [name]
    whole_again = Home(tmp_path / "anew").trial(name)
    shutil.copytree(whole.path, whole_again.path)
    whole_again.done.write_text("2040-01-01T00:00:00+00:00\n")  # retrained, and done at another time
    assert files.lacking([whole_again]) == [whole_again]


class End:
    """A run that writes only how it ends."""

    def __init__(self, path: Path, *_: object) -> None:
        self.path = path / "end"

    def write(self, metrics: Mapping[str, float], epoch: int, when: float) -> None: ...

    def close(self, *, done: bool) -> None:
        self.path.write_text("done" if done else "not done")


def test_each_run_ends_with_its_launch_and_says_whether_its_trial_is_done(trained: Home, tmp_path: Path) -> None:
    whole, tracker = trained.trials()[0], RunFiles("ends", End, tmp_path / "copies")
    cut = Home(tmp_path / "cut").trial(trained.trials()[1].trial_id)
    shutil.copytree(trained.trials()[1].path, cut.path)
    cut.done.unlink()
    copied(tracker, whole, cut)
    ends = [(tracker.place / folder.trial_id / "end").read_text() for folder in (whole, cut)]
    assert ends == ["done", "not done"]


def test_a_grid_names_its_trackers_and_they_are_no_part_of_its_trials(tmp_path: Path) -> None:
    home, grid = Home(tmp_path), load("demo", ['trackers=["mlflow","tensorboard"]'])
    assert grid.name == "demo"
    assert [tracker.name for tracker in trackers_of(grid, home)] == ["MLflow", "TensorBoard"]
    assert [tracker.name for tracker in trackers_of(grid, home, "")] == ["TensorBoard"]
    assert trackers_of(load("demo", ["trackers=[]"]), home) == []
    with pytest.raises(UserError, match=r"unknown tracker 'tensorbord'\. Did you mean 'tensorboard'"):
        load("demo", ["trackers=tensorbord"])


@pytest.mark.gate
@pytest.mark.parametrize("module", ["wandb.proto.wandb_internal_pb2", "wandb.sdk.internal.datastore"])
def test_without_wandbs_own_reader_a_run_counts_as_written(module: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    assert trackers._ended("no-such-file")
