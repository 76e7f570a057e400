"""Launches that keep what they are: jobs train the grid and the code of the launch, or nothing."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from goalgrid.grid.errors import UserError
from goalgrid.grid.expansion import trials_of
from goalgrid.grid.gridfile import load
from goalgrid.grid.store.home import Home
from goalgrid.launching import kept
from goalgrid.state.grid_state import GridState
from tests.program import copied, put_into_result

from ...conftest import SMALL, swapped
from ..conftest import PAIR, Verb

LOSS = '''
import torch, goalgrid

@goalgrid.objective("mine", margin=goalgrid.Parameter(0.2, "least lead of the positive"))
def mine(t, *, margin):
    """relu(s_neg - s_pos + margin)"""
    return torch.relu(t.s_neg - t.s_pos + margin)
'''
HERE = ("--here", "--mlflow-uri", "")
AXES = 'name = "later"\ndatasets = "shapes"\nrecipes = "cnn-bow"\nobjectives = ["con_con", "con_nca"]\n'
LATER = pytest.mark.parametrize(
    "more",
    [
        'seeds = "until resolved"\n[budget]\nseeds = 4\n',
        'seeds = [0, 1]\n[select]\nover = { "train.lr" = [1e-2, 1e-3] }\n',
    ],
    ids=["until resolved", "select"],
)


@pytest.fixture
def ours(tmp_path: Path) -> Path:
    (tmp_path / "losses.py").write_text(LOSS)
    (tmp_path / "mine.toml").write_text(
        'name = "mine"\nuses = ["losses.py"]\ndatasets = "shapes"\nrecipes = "cnn-bow"\nobjectives = ["mine"]\n'
        "seeds = [0, 1]\n"
    )
    return tmp_path


def launched(verb: Verb, home: Home, *words: str) -> Path:
    verb("slurm", *words, "--gpus", "0", runs=home)
    return home.grid("demo").kept_launches()[-1].path


def test_a_launch_is_named_by_its_content(tmp_path: Path, verb: Verb) -> None:
    home = Home(tmp_path)
    first = launched(verb, home, "demo", *PAIR)
    assert launched(verb, home, "demo", *PAIR) == first
    verb("slurm", "demo", *PAIR, "--set", "seeds=[0,1]", "--gpus", "0", runs=home)
    assert len(home.grid("demo").kept_launches()) == 2


def test_a_changed_or_foreign_folder_is_refused(tmp_path: Path, verb: Verb) -> None:
    home = Home(tmp_path)
    folder = launched(verb, home, "demo", *PAIR)
    (folder / "grid.toml").write_text(swapped((folder / "grid.toml").read_text(), "con_con", "con_nca"))
    with pytest.raises(UserError, match=f"the launch {folder} was changed"):
        verb("run", "--launch", str(folder), *HERE, runs=home)
    with pytest.raises(UserError, match=f"{tmp_path} holds no launch"):
        verb("run", "--launch", str(tmp_path), *HERE, runs=home)
    with pytest.raises(UserError, match="--launch already determines the grid and its settings; leave out 'demo'"):
        verb("run", "demo", "--launch", str(folder), *HERE, runs=home)


def test_two_launches_of_one_grid_are_refused(tmp_path: Path, verb: Verb) -> None:
    home = Home(tmp_path)
    folders = [launched(verb, home, "demo", *PAIR, *more) for more in ((), ("--set", "seeds=[0,1]"))]
    with pytest.raises(UserError, match=r"two launches belong to grid 'demo': give one --launch per grid\."):
        verb("run", *(word for folder in folders for word in ("--launch", str(folder))), *HERE, runs=home)


def test_a_run_warns_of_a_launch_whose_waiting_jobs_train_something_else(tmp_path: Path, verb: Verb) -> None:
    home = Home(tmp_path)
    folder = launched(verb, home, "demo", *PAIR)
    one = ("--set", 'objectives=["con_con"]')
    same = verb("run", "demo", *PAIR, *one, "--only", "objective=con_con", *HERE, runs=home)
    assert f"warning: launch {folder.name} was saved with other settings or code for 1 trial, e.g. " in same.stderr
    assert f"To train the launch as saved: goalgrid run --launch {folder}\n" in same.stderr
    assert "keeps other" not in verb("run", "demo", *PAIR, "--only", "objective=con_con", *HERE, runs=home).stderr


def test_a_launch_trains_what_it_keeps_and_the_status_says_which(tmp_path: Path, verb: Verb) -> None:
    home = Home(tmp_path)
    folder = launched(verb, home, "demo", *PAIR)
    assert "trained no trial yet" in verb("status", str(folder / "grid.toml"), runs=home).stdout
    finished = verb("run", "--launch", str(folder), "--only", "objective=con_con", *HERE, runs=home)
    assert finished.exit_code == 0, finished.stderr
    (trial,) = home.trials()
    seen = json.loads(verb("status", "demo", "--json", runs=home).stdout)["launches"]
    assert seen == {folder.name: [trial.trial_id]}
    assert f"launch {folder.name}: trained 1 trial; goalgrid " in verb("status", "demo", runs=home).stdout


@pytest.mark.gate
def test_an_export_takes_launches_along_that_trained_its_trials(tmp_path: Path, verb: Verb) -> None:
    home, target = Home(tmp_path / "runs"), tmp_path / "export"
    launched(verb, home, "demo", *PAIR, "--set", "seeds=[1]")
    launch = kept.of(GridState.of(load("demo", PAIR[1::2]), home), b"an archive")
    folder = home.grid("demo").launch(launch.id)
    launch.write(folder, b"an archive")
    assert verb("run", "--launch", str(folder.path), *HERE, runs=home).exit_code == 0
    assert verb("export", "demo", str(target), runs=home).exit_code == 0
    (copied,) = (target / "launches").iterdir()
    assert copied.name == launch.id
    assert {path.name for path in copied.iterdir()} == {"grid.toml", "launch.json", "code.tar.gz"}
    assert all(path.read_bytes() == (folder.path / path.name).read_bytes() for path in copied.iterdir())
    assert "- `launches/`: " in (target / "README.md").read_text()


def test_tasks_that_start_after_edits_of_the_grid_and_its_code_train_one_grid(ours: Path, verb: Verb) -> None:
    home, grid = Home(ours / "runs"), ours / "mine.toml"
    verb("slurm", str(grid), *SMALL[:-2], "--set", "name=mine", "--gpus", "0", "--array", "2", runs=home)
    (folder,) = home.grid("mine").kept_launches()
    run = ("run", "--launch", str(folder.path), *HERE)
    assert verb(*run, "--only", "seed=0", runs=home).exit_code == 0
    grid.write_text(swapped(grid.read_text(), "[0, 1]", "[0, 1, 2]"))
    (ours / "losses.py").write_text(swapped(LOSS, "torch.relu(t", "2 * torch.relu(t"))
    assert verb(*run, "--only", "seed=1", runs=home).exit_code == 0
    codes = [pq.read_table(trial.record)["code_fingerprint"][0].as_py() for trial in home.trials()]
    assert (len(codes), len(set(codes))) == (2, 1)
    assert "2 trials: 2 done" in verb("status", "mine", runs=home).stdout
    assert "2 * torch" not in home.grid("mine").grid.read_text()


@pytest.mark.gate
def test_other_code_than_the_launch_keeps_trains_nothing_and_names_both_versions(tmp_path: Path, verb: Verb) -> None:
    home, code = Home(tmp_path / "runs"), copied(tmp_path / "code")
    folder = launched(verb, home, "demo", *PAIR)
    schedules = code / "runners" / "training" / "optimizers.py"
    put_into_result("learning_rate", "2", schedules)
    command = [sys.executable, "-m", "goalgrid", "run", "--launch", str(folder), *HERE, "--runs", str(home.path)]
    environment = {**os.environ, "PYTHONPATH": str(code)}
    refused = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=code)
    assert refused.returncode == 4, refused.stderr
    first = GridState.of(load("demo", PAIR[1::2]), home).trials[0].id
    assert f"2 trials not trained, e.g. {first}" in refused.stderr
    codes = json.loads((folder / "launch.json").read_text())["code"]
    there, here = re.findall(r"goalgrid \S+(?: \(commit .*?\))? with code ([0-9]+:[0-9a-f]{16})", refused.stderr)
    assert f"launch {folder.name} was made by goalgrid " in refused.stderr
    assert first in codes[there]
    assert here != there
    assert home.trials() == []


@LATER
def test_a_launch_knows_the_code_of_trials_that_come_later(more: str, tmp_path: Path) -> None:
    (tmp_path / "later.toml").write_text(AXES + more)
    grid = load(str(tmp_path / "later.toml"))
    grid_state = GridState.of(grid, Home(tmp_path))
    known = kept.codes(grid_state)
    assert {trial.id for trial in trials_of(grid_state.candidates)} == set(known)
    assert len(known) > len(grid_state.trials)


@LATER
@pytest.mark.gate
def test_a_launch_trains_the_trials_that_come_later(more: str, tmp_path: Path, verb: Verb) -> None:
    home = Home(tmp_path / "runs")
    (tmp_path / "later.toml").write_text(AXES + more)
    verb("slurm", str(tmp_path / "later.toml"), *SMALL[:-2], "--set", "name=later", "--gpus", "0", runs=home)
    (folder,) = home.grid("later").kept_launches()
    finished = verb("run", "--launch", str(folder.path), *HERE, runs=home)
    assert finished.exit_code == 0, finished.stderr
    (ids,) = json.loads(verb("status", "later", "--json", runs=home).stdout)["launches"].values()
    assert sorted(ids) == sorted(trial.trial_id for trial in home.trials())
    assert len(ids) > 4
