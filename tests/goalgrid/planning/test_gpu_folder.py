"""The GPU plan is a folder that can be deleted: all else plans, runs and writes scripts as before."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.program import ROOT, copied

SMALL = ("recipes=cnn-bow", "objectives=con_con", "seeds=0", "train.epochs=1", "dataset.train_images=40")
DEMO = ("demo", *(part for word in SMALL for part in ("--set", word)))


@pytest.mark.gate
def test_without_the_gpu_plan_all_else_works_and_a_question_about_a_gpu_is_refused(tmp_path: Path) -> None:
    shutil.rmtree(copied(tmp_path / "without") / "goalgrid" / "planning" / "gpu")

    def answer(root: Path, *words: str) -> tuple[int, str, str]:
        environment = {**os.environ, "PYTHONPATH": str(root), "GOALGRID_RUNS": str(tmp_path / "runs")}
        command = [sys.executable, "-m", "goalgrid", *words]
        ended = subprocess.run(command, cwd=root, env=environment, capture_output=True, text=True)
        return ended.returncode, ended.stdout, ended.stderr

    without = tmp_path / "without"
    expected = answer(ROOT, "plan", *DEMO, "--json")
    assert expected[0] == 0
    assert answer(without, "plan", *DEMO, "--json") == expected
    code, script, note = answer(without, "slurm", *DEMO, "--set", "datasets=flickr30k", "--gpus", "1")
    assert (code, "#SBATCH --gpus-per-node=1" in script) == (0, True)
    assert "CPUs and memory of a trial are unknown: no estimate for a100-80" in note
    for words in (("plan", *DEMO, "--device", "h100"), ("slurm", *DEMO, "--gpus", "1", "--device", "h100")):
        code, out, error = answer(without, *words)
        assert (code, out) == (2, "")
        assert (
            "no estimate for h100: goalgrid/planning/gpu is missing here. Install all of goalgrid, or leave out"
            in error
        )
    code, _, error = answer(without, "run", *DEMO, "--here")
    assert code == 0, error
