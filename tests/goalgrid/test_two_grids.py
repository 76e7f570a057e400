"""Grids of one process whose files give one name different meanings: each as it is alone, in turn and in threads."""

import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import goalgrid as python

from ..conftest import ROOT

pytestmark = pytest.mark.gate

LOSSES = """
import torch
import goalgrid
from goalgrid import Parameter

@goalgrid.objective("mine", tau=Parameter({tau}, "steepness"))
def mine(t, *, tau):
    "{formula}"
    return {formula}

@goalgrid.pooling("one")
def one(values, present):
    return {pooled}

@goalgrid.text_encoder("read", width=Parameter({width}, "values of a word"))
class Read(torch.nn.Module):
    def __init__(self, words, dim, *, width):
        super().__init__()
        self.words, self.line = torch.nn.Embedding(words, width), torch.nn.Linear(width, dim)

    def forward(self, ids, lengths):
        return self.line(self.words(ids).sum(1) / lengths[:, None])
"""
MEANINGS = {
    "first": {
        "tau": "10.0", "width": "8", "pooled": "values[:, 0]", "formula": "torch.relu(t.s_neg - t.s_pos + 0.02 * tau)"
    },
    "second": {
        "tau": "4.0", "width": "24", "pooled": "values.sum(1)",
        "formula": "torch.nn.functional.softplus(tau * (t.s_neg - t.s_pos))",
    },
}  # fmt: skip
GRID = """
name = "grid"
uses = "losses.py"
datasets = "shapes"
recipes = ["pooled", "own"]
objectives = "mine"
seeds = 0
[recipe.pooled]
extends = "cnn-bow"
model.dim = {dim}
model.text.pooling = "one"
[recipe.own]
extends = "cnn-bow"
model.dim = {dim}
model.text = {{ encoder = "own", name = "read" }}
[set]
"train.epochs" = 2
"dataset.train_images" = 200
"train.batch_size" = 100
"model.image.size" = 16
"""
ALONE = """
import json
from pathlib import Path
import goalgrid
from tests.goalgrid.test_two_grids import told
print(json.dumps(told(goalgrid.load("grid.toml", runs="alone"), Path("alone"))))
"""


def told(grid: python.LoadedGrid, runs: Path) -> dict[str, object]:
    """Plan, train and tabulate a grid; return what all of that says, and the history of each trial."""
    plan = grid.plan().text
    grid.run(here=True, mlflow_uri="")
    rows = {name: (runs / "trials" / name / "history.jsonl").read_text().splitlines() for name in grid.trials}
    return {
        "plan": plan.partition("\n")[0],
        "states": grid.states,
        "stale": sorted(set(grid.records()["stale"])),
        "table": grid.table(metric="rsum").text("csv"),
        "loss": {f"{name} {n}": json.loads(row)["loss"] for name, lines in rows.items() for n, row in enumerate(lines)},
    }


def close(found: dict[str, Any], alone: dict[str, Any]) -> bool:
    """Whether two results are equal, the losses but for rounding."""
    losses = pytest.approx(alone["loss"], rel=1e-5)
    return {**found, "loss": 0} == {**alone, "loss": 0} and found["loss"] == losses


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    base = tmp_path_factory.mktemp("two")
    for dim, (name, meaning) in zip((16, 32), MEANINGS.items(), strict=True):
        (base / name).mkdir()
        (base / name / "losses.py").write_text(LOSSES.format(**meaning), encoding="utf-8")
        (base / name / "grid.toml").write_text(GRID.format(dim=dim), encoding="utf-8")
    return base


@pytest.fixture(scope="module")
def alone(folder: Path) -> list[dict[str, Any]]:
    """The results of each grid as the only one of its process."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    begun = [
        subprocess.Popen([sys.executable, "-c", ALONE], cwd=folder / name, env=environment, stdout=-1, text=True)
        for name in MEANINGS
    ]
    return [json.loads(process.communicate(timeout=240)[0].splitlines()[-1]) for process in begun]


def loaded(folder: Path, runs: str) -> list[tuple[python.LoadedGrid, Path]]:
    places = [folder / name for name in MEANINGS]
    return [(python.load(place / "grid.toml", runs=place / runs), place / runs) for place in places]


def test_in_turn(folder: Path, alone: list[dict[str, Any]]) -> None:
    first, second = grids = loaded(folder, "turn")
    assert alone[0]["loss"] != alone[1]["loss"]
    assert all(map(close, [told(*grid) for grid in grids], alone))
    again = [{**result, "plan": "2 trials: 2 done"} for result in alone]
    for grid, result in ((second, again[1]), (first, again[0])):
        assert close({**told(*grid), "plan": "2 trials: 2 done"}, result)


def test_in_threads(folder: Path, alone: list[dict[str, Any]]) -> None:
    with ThreadPoolExecutor(2) as threads:
        found = threads.map(lambda grid: told(*grid), loaded(folder, "threads"))
        assert all(map(close, found, alone))
