"""Grids of one command that train together: which may, the jobs of both, and a launch by Ray."""

import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from goalgrid.grid.expansion import expand, trials_of
from goalgrid.grid.gridfile import Grid, load
from goalgrid.grid.store.home import Home
from goalgrid.launching.together import groups_of, united
from goalgrid.runners.launch.jobs import jobs_for

from ...conftest import Goalgrid, checked

AXES = {"datasets": "shapes", "recipes": "cnn-bow", "objectives": ["con_con"], "seeds": [0]}


def grid(name: str, **more: object) -> Grid:
    return checked({"name": name, **AXES, **more})


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ({"resources": {"cpu": 2}}, "their [resources] differ"),
        ({"reliability": {"grace_seconds": 5}, "evaluate": {"datasets": ["shapes"]}}, "[reliability] and [evaluate]"),
        ({"seeds": "until resolved"}, "b trains in rounds (seeds until resolved)"),
        ({"select": {"over": {"train.lr": [0.1, 0.2]}}, "seeds": [1]}, "b trains in rounds ([select])"),
        ({"recipe": {"mine": {"extends": "cnn-bow"}}}, "their [recipe] differ"),
        ({"weights": {"resnet": "/two"}}, "their [weights] differ"),
        ({"set": {"train.epochs": 3}, "seeds": [1, 2], "trackers": [], "weights": {"other": "/two"}}, ""),
    ],
)
def test_grids_train_together_where_what_a_launch_has_once_agrees(more: dict[str, object], why: str) -> None:
    first, second, third = grid("a", weights={"resnet": "/one"}), grid("b", **more), grid("c", **more)
    groups = groups_of([first, second, third])
    if why:
        assert groups[0].grids == (first,)
        assert why in groups[1].why
    else:
        assert [(group.grids, group.why) for group in groups] == [((first, second, third), "")]
        assert united([first, second]).weights == {"resnet": "/one", "other": "/two"}


def test_a_chain_of_two_grids_is_one_job_with_the_folders_of_both() -> None:
    recipes, small = ["vsepp-r152-tiny", "vsepp-r152-tiny-ft"], ['objectives=["con_con"]', "seeds=[0]"]
    parent, child = (
        load("flickr8k", [f"recipes={json.dumps(names)}", *small, f"name={name}"], roots=[f"flickr8k={root}"])
        for name, names, root in (("a", recipes[:1], "/data"), ("b", recipes[1:], "/data"))
    )
    trials = {trial.id: trial for one in (parent, child) for trial in trials_of(expand(one))}
    (group,) = groups_of([parent, child])
    (job,) = jobs_for(united(group.grids), [*trials.values()], Home(Path("/tmp/runs")), gpus=0)
    assert [settings.recipe for settings in job.trials] == recipes
    assert job.machine.roots == (("flickr8k", "/data"),)


@pytest.mark.gate
def test_two_grids_share_a_launch_and_the_trials_of_both_are_trained_once(tmp_path: Path, goalgrid: Goalgrid) -> None:
    """One job at a time: those of the first grid come first, in whatever order Ray would begin them."""
    small = '"train.epochs" = 1\n"dataset.train_images" = 200\n"model.image.size" = 16\n"model.dim" = 32\n'
    axes = f'datasets = "shapes"\nrecipes = "cnn-bow"\nseeds = [0]\n[set]\n{small}'
    for name, objectives in {"a": ["sig-ms_cir", "con_con"], "b": ["con_con", "lin_con"]}.items():
        (tmp_path / f"{name}.toml").write_text(f'name = "{name}"\nobjectives = {json.dumps(objectives)}\n{axes}')
    home = Home(tmp_path / "runs")
    done = goalgrid("run", "a.toml", "b.toml", "-j", "1", runs=home.path, folder=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "one launch: jobs of a start first, those of b as slots are free" in done.stderr
    folders = home.trials()
    attempts = [attempt for folder in folders for attempt in folder.attempts()]
    assert len(folders) == len(attempts) == 3
    assert len({attempt.launch() for attempt in attempts}) == 1
    order = sorted(folders, key=lambda folder: folder.done.stat().st_mtime)
    assert order[-1].trial_id.startswith("shapes_cnn-bow_lin_con"), "the trial that only the second grid has"
    assert done.stdout.count("cnn-bow on shapes") == 2
    with closing(sqlite3.connect(home.mlflow)) as copies:
        runs = copies.execute("SELECT e.name, count(*) FROM runs r JOIN experiments e USING (experiment_id) GROUP BY 1")
        assert sorted(runs) == [("a", 2), ("b", 2)]
