"""What a user without the packages of extras has: the demo, and one line that names the extra for anything else."""

import json
import os
import subprocess
import sysconfig
import venv
from pathlib import Path

import pytest

from goalgrid.grid.optional_dependencies import EXTRAS
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


COMMANDS = """
import contextlib, io, json, sys
from goalgrid.cli.app import main
for words in json.load(sys.stdin):
    out, err, code = io.StringIO(), io.StringIO(), 0
    sys.argv = ["goalgrid", *words]
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            main()
        except SystemExit as end:
            code = end.code
    print(json.dumps([code, out.getvalue(), err.getvalue()]))
"""

Ended = tuple[int, str, str]
"""Exit code and outputs of a command."""


def given(bare: Path, folder: Path, *commands: list[str]) -> list[Ended]:
    """These commands in one process, which takes seconds to start."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    process = subprocess.run(
        [bare, "-c", COMMANDS], input=json.dumps(commands), cwd=folder, env=environment, capture_output=True, text=True
    )
    assert process.returncode == 0, process.stderr
    return [tuple(json.loads(line)) for line in process.stdout.splitlines()]


MISSING = {
    "recipes=clip-tiny": "transformers, which is not installed here: pip install 'goalgrid[pretrained]'",
    "objectives=ncr": "scikit-learn, which is not installed here: pip install 'goalgrid[ncr]'",
    "dataset.words=nltk": "nltk, which is not installed here: pip install 'goalgrid[nltk]'",
    'trackers=["wandb"]': "wandb, which is not installed here: pip install 'goalgrid[wandb]'",
}


def test_a_run_and_its_plan_name_the_extra_that_they_need(bare: Path, tmp_path: Path) -> None:
    commands = [[verb, "demo", "--set", word] for word in MISSING for verb in ("run", "plan")]
    ended = given(bare, tmp_path, *commands)
    assert not (tmp_path / "runs" / "trials").exists()
    for message, run, plan in zip(MISSING.values(), ended[::2], ended[1::2], strict=True):
        assert run[0] == 2, run
        (line,) = run[2].splitlines()
        assert message in line
        assert plan[0] == 0, plan
        assert f"  needs      {message}\n" in plan[1]


@pytest.mark.slow
def test_the_demo_trains_without_any_extra(bare: Path, tmp_path: Path) -> None:
    run = ["run", "demo", "--here", "--only", "objective=con_con seed=0", "--set", "train.epochs=1"]
    trained, planned = given(bare, tmp_path, run, ["plan", "demo", "--set", "recipes=clip-tiny"])
    assert (trained[0], "Recall" in trained[1]) == (0, True), trained
    assert planned[0] == 0
