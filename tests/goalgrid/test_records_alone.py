"""reliability.keep = "record": the weights of finished trials go, unless another trial reads them."""

import json
from pathlib import Path

import pytest
import torch

from goalgrid.grid.errors import UserError
from goalgrid.grid.expansion import dropping, expand
from goalgrid.grid.gridfile import load
from goalgrid.grid.store.home import Home
from goalgrid.runners.training import checkpoints
from goalgrid.runners.training.progress import best_of

from ..conftest import Goalgrid

GRID = """
name = "two"
datasets = "shapes"
recipes = "second"
objectives = "con_con"
seeds = 0
[recipe.first]
extends = "cnn-bow"
model.dim = 16
model.image.size = 16
train = { epochs = 1, batch_size = 500 }
[recipe.second]
extends = "first"
starts_from = "first"
[reliability]
keep = "record"
"""
EVALUATED = """
[evaluate]
datasets = ["few"]
[data.few]
root = "{}"
"""


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory, goalgrid: Goalgrid, few_pictures: Path) -> Home:
    folder = tmp_path_factory.mktemp("records-alone")
    (folder / "two.toml").write_text(GRID + EVALUATED.format(few_pictures))
    finished = goalgrid("run", str(folder / "two.toml"), "--here", "--mlflow-uri", "", runs=folder)
    assert finished.returncode == 0, finished.stderr
    return Home(folder)


def by_recipe(home: Home, recipe: str) -> Path:
    (folder,) = (trial.path for trial in home.trials() if f"_{recipe}_" in trial.trial_id)
    return folder


def test_weights_that_no_other_trial_reads_go_when_a_trial_is_done_and_evaluated(home: Home) -> None:
    first, second = (
        checkpoints.load(by_recipe(home, name) / "best.ckpt", torch.device("cpu")) for name in ("first", "second")
    )
    assert first
    assert second
    assert "model" in first
    assert "model" not in second
    assert first.keys() > second.keys() >= {"trial", "row", "vocabulary"}
    assert list((by_recipe(home, "second") / "evaluations").glob("*.parquet"))


def test_what_needs_the_weights_says_that_they_went(home: Home, goalgrid: Goalgrid) -> None:
    trial = home.trial(by_recipe(home, "second").name)
    with pytest.raises(UserError, match=r'weights of .* were deleted, since its grid has reliability.keep = "record"'):
        best_of(trial, torch.device("cpu"))
    answer = goalgrid("evaluate", "--trial", trial.trial_id, runs=home.path)
    assert answer.returncode == 2
    assert "were deleted, since its grid" in answer.stderr
    assert "Traceback" not in answer.stderr


def test_the_grid_is_whole_and_its_trials_are_merged(home: Home, goalgrid: Goalgrid, tmp_path: Path) -> None:
    assert goalgrid("status", "two", runs=home.path).returncode == 0
    taken = goalgrid("merge", str(home.path), runs=tmp_path)
    assert taken.returncode == 0, taken.stdout + taken.stderr
    assert (by_recipe(Home(tmp_path), "second") / "record.parquet").exists()


def test_the_plan_counts_the_weights_that_stay(home: Home, goalgrid: Goalgrid, tmp_path: Path) -> None:
    (tmp_path / "three.toml").write_text(GRID.replace('"two"', '"three"').replace("seeds = 0", "seeds = [0, 1]"))
    sizes = {}
    for keep in ("record", "weights"):
        answer = goalgrid(
            "plan", str(tmp_path / "three.toml"), "--set", f"reliability.keep={keep}", "--json", runs=home.path
        )
        sizes[keep] = json.loads(answer.stdout)["cost"]["disk_bytes"]
    weights = by_recipe(home, "first") / "best.ckpt"
    assert sizes["weights"][1] - sizes["record"][1] == pytest.approx(weights.stat().st_size, rel=0.1)


def test_a_trial_that_another_starts_from_keeps_its_weights(tmp_path: Path) -> None:
    (tmp_path / "two.toml").write_text(GRID)
    grid = load(str(tmp_path / "two.toml"))
    cells = expand(grid)
    parents = {parent for cell in cells for trial in cell.trials for parent in trial.parents}
    assert parents
    assert parents.isdisjoint(dropping(grid, cells))
    assert dropping(grid, cells) | parents == {trial.id for cell in cells for trial in cell.trials}
