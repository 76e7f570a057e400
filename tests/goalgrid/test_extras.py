"""What a user without the packages of extras has: the demo, and one line that names the extra for anything else."""

import os
import subprocess
import sysconfig
import venv
from pathlib import Path

import pytest

from goalgrid.grid.extras import EXTRAS
from tests.conftest import ROOT


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Python with the packages of this one, but for those of extras."""
    folder = tmp_path_factory.mktemp("bare")
    venv.create(folder, with_pip=False, symlinks=True)
    (packages,) = folder.glob("lib/*/site-packages")
    hidden = {module for _, module in EXTRAS.values()}
    for path in Path(sysconfig.get_path("purelib")).iterdir():
        if path.name not in hidden:
            (packages / path.name).symlink_to(path)
    return folder / "bin" / "python"


def given(bare: Path, tmp_path: Path, *words: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    command = [bare, "-m", "goalgrid", *words]
    return subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)


@pytest.mark.parametrize(
    ("word", "message"),
    [
        ("recipes=clip-tiny", "transformers, which is not installed here: pip install 'goalgrid[pretrained]'"),
        ("objectives=ncr", "scikit-learn, which is not installed here: pip install 'goalgrid[ncr]'"),
        ("dataset.words=nltk", "nltk, which is not installed here: pip install 'goalgrid[nltk]'"),
        ('trackers=["wandb"]', "wandb, which is not installed here: pip install 'goalgrid[wandb]'"),
    ],
)
def test_a_run_and_its_plan_name_the_extra_that_they_need(word: str, message: str, bare: Path, tmp_path: Path) -> None:
    ended = given(bare, tmp_path, "run", "demo", "--set", word)
    assert ended.returncode == 2
    (line,) = ended.stderr.splitlines()
    assert message in line
    assert not (tmp_path / "runs" / "trials").exists()
    planned = given(bare, tmp_path, "plan", "demo", "--set", word)
    assert planned.returncode == 0, planned.stderr
    assert f"  needs      {message}\n" in planned.stdout


@pytest.mark.slow
def test_the_demo_trains_without_any_extra(bare: Path, tmp_path: Path) -> None:
    ended = given(
        bare, tmp_path, "run", "demo", "--here", "--only", "objective=con_con seed=0", "--set", "train.epochs=1"
    )
    assert (ended.returncode, "Recall" in ended.stdout) == (0, True), ended.stderr
    assert given(bare, tmp_path, "plan", "demo", "--set", "recipes=clip-tiny").returncode == 0
