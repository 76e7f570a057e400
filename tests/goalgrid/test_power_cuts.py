"""A power cut at any call that writes: files that were not flushed are empty then, and the same command gives the same.

`GOALGRID_EVERY=1 pytest -n 0 -m slow tests/goalgrid/test_power_cuts.py` cuts the power at every call.
"""

import os
import random
import shutil
import signal
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from goalgrid.grid.expansion import Cell, expand
from goalgrid.grid.gridfile import load
from goalgrid.grid.store.home import Home, State
from goalgrid.results.records.record import differences

from ..failing_disk.commands import POWER_CUT, Call, Commands, Fault
from .damaged_runs import write_data
from .processes import trained_after_done

SETTINGS = """
name = "cut"
objectives = ["infonce"]
seeds = [0]
[set]
"train.epochs" = 3
"model.image.size" = 16
"model.dim" = 16
"""
SQUARES = """
"train.batch_size" = 100
[data.squares]
root = "ROOT"
"""
CHAIN = """
[recipe.tuned]
extends = "cnn-bow"
starts_from = "cnn-bow"
"""
SEARCH = """
"dataset.train_images" = 500
"train.batch_size" = 20
[select]
over = { "train.lr" = [1e-2, 1e-5, 1e-3] }
stop = "asha"
grace = 2
"""


def grid(dataset: str, recipe: str, more: str) -> str:
    return f'datasets = ["{dataset}"]\nrecipes = ["{recipe}"]{SETTINGS}{more}'


GRIDS = {
    "a run": grid("squares", "cnn-bow", SQUARES),
    "a chain": grid("squares", "tuned", SQUARES + CHAIN),
    "a search": grid("shapes", "cnn-bow", SEARCH),
}
WRITING = Call.CREATE | Call.WRITE | Call.SYNC | Call.RENAME | Call.LINK | Call.MKDIR | Call.UNLINK


@dataclass(frozen=True)
class Undisturbed:
    """A grid file, and what it gives: trials with their records, the table, and the choices of a search."""

    grid: Path
    commands: Commands
    home: Home
    cells: list[Cell]
    result: dict[str, str]

    def run(self, home: Home, fault: Fault | None = None) -> CompletedProcess[str]:
        words = ("run", str(self.grid), "--here", "--mlflow-uri=")
        return self.commands(*words, runs=home.path, fault=fault, seconds=300)

    def cut(self, n: int, home: Home) -> list[str] | None:
        """Cut the power at the n-th call that writes, and run again: what is wrong; None: there are fewer calls."""
        cut = self.run(home, Fault(home.path, WRITING, POWER_CUT, after=n - 1, lasting=False))
        if cut.returncode == 0:
            return None
        again = self.run(home)
        wrong = [] if cut.returncode == -signal.SIGKILL else [f"exit {cut.returncode} at the cut: {cut.stderr}"]
        if again.returncode or "Traceback" in again.stderr:
            wrong.append(f"exit {again.returncode}")
        wrong += differences(self.cells, self.home, home) + [f"{name} twice" for name in trained_after_done(home)]
        now = result(self.commands, home)
        wrong += [f"{name}: {now.get(name)}" for name in self.result if now.get(name) != self.result[name]]
        return [f"call {n}: {line}; {again.stderr[-500:]}" for line in wrong]


def result(commands: Commands, home: Home) -> dict[str, str]:
    """What the grid's verbs show of its results, and the files that they are read from."""
    table = commands("table", "cut", "--format", "csv", runs=home.path)
    states = commands("status", "cut", runs=home.path)
    shown = {"table": table.stdout, "status": f"{states.returncode} {states.stdout}"}
    choices = home.grid("cut").choices
    return shown | ({"choices": choices.read_text()} if choices.exists() else {})


@pytest.fixture(params=GRIDS)
def undisturbed(request: pytest.FixtureRequest, commands: Commands, tmp_path: Path) -> Undisturbed:
    write_data(tmp_path / "data")
    file = tmp_path / "cut.toml"
    file.write_text(GRIDS[request.param].replace("ROOT", str(tmp_path / "data")), encoding="utf-8")
    home = Home(tmp_path / "undisturbed")
    whole = Undisturbed(file, commands, home, expand(load(str(file), [])), {})
    finished = whole.run(home)
    assert finished.returncode == 0, finished.stderr
    assert any(folder.state() is State.STOPPED for folder in home.trials()) == (request.param == "a search")
    return Undisturbed(file, commands, home, whole.cells, result(commands, home))


@pytest.fixture
def homes(tmp_path: Path) -> Iterator[Home]:
    """Empty runs folders, each of which replaces the one before."""
    return (Home(_emptied(tmp_path / "cut")) for _ in count())


def _emptied(folder: Path) -> Path:
    shutil.rmtree(folder, ignore_errors=True)
    return folder


@pytest.mark.gate
def test_a_power_cut_changes_no_result(undisturbed: Undisturbed, homes: Iterator[Home]) -> None:
    assert not undisturbed.cut(random.randrange(1, 150), next(homes))


@pytest.mark.slow
def test_power_cuts_at_calls_of_a_whole_run_change_no_result(undisturbed: Undisturbed, homes: Iterator[Home]) -> None:
    every, wrong = int(os.environ.get("GOALGRID_EVERY", "13")), list[str]()
    for n in count(every, every):
        if (found := undisturbed.cut(n, next(homes))) is None:
            break
        wrong += found
    assert not wrong, "\n".join(wrong)
    assert n > 10 * every
