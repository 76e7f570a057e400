"""A user's own `grid.py` and `results` in the working folder leave goalgrid as it is."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from grid.store.home import Home

from ..conftest import ROOT

MARK = "a user's own module"
ONE = ("--set", 'objectives=["con_con"]', "--set", "seeds=[0]", "--set", "train.epochs=1", "--mlflow-uri", "")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("work")
    (folder / "results").mkdir()
    for file in (folder / "grid.py", folder / "results" / "__init__.py"):
        file.write_text(f"def mine():\n    return {MARK!r}\n")
    return folder


def python(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    return subprocess.run([sys.executable, *arguments], cwd=folder, env=environment, capture_output=True, text=True)


def test_the_module_runs_beside_them(folder: Path) -> None:
    shown = python(folder, "-m", "goalgrid", "recipes", "cnn-bow")
    assert (shown.returncode, shown.stderr) == (0, "")


def test_an_import_finds_ours_and_names_theirs(folder: Path) -> None:
    shown = python(
        folder, "-c", "import goalgrid, grid.expansion; goalgrid.load, goalgrid.UserError; print(grid.__path__)"
    )
    assert str(ROOT / "grid") in shown.stdout
    assert shown.stderr.count(f"{folder / 'grid.py'} and {folder / 'results' / '__init__.py'}") == 1


def test_a_folder_without_code_hides_nothing(tmp_path: Path) -> None:
    (tmp_path / "results").mkdir()
    assert python(tmp_path, "-c", "import goalgrid, results.records.record; goalgrid.load").stderr == ""


def test_one_message_names_a_module_that_was_imported_before(folder: Path) -> None:
    shown = python(folder, "-c", "import grid, goalgrid")
    message = shown.stderr.splitlines()[-1]
    assert message.startswith(f"ImportError: {folder / 'grid.py'} is imported already")
    assert "Rename it, and start Python anew." in message


@pytest.mark.slow
@pytest.mark.parametrize("replicas", [1, 2])
def test_workers_of_ray_and_replicas_train_beside_them(folder: Path, replicas: int) -> None:
    asked = ("--set", f"resources.replicas={replicas}", "--set", 'recipes=["cnn-bow"]', "--runs", str(replicas))
    finished = python(folder, "-m", "goalgrid", "run", "demo", *ONE, *asked)
    assert finished.returncode == 0, finished.stderr
    assert [trial.record.exists() for trial in Home(folder / str(replicas)).trials()] == [True]
