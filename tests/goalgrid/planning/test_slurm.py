"""The batch script for Slurm: its form, and a grid that it trains to its end through a time limit and a requeue.

The scheduler is a fake: `sbatch` and `scontrol` queue jobs in a folder, and the test starts them as Slurm would, with
its signal at the time limit. The job trains without Ray, whose own tests send it the same signal.
"""

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import pytest

from grid.store.home import Home

from ...conftest import ROOT, SMALL, Goalgrid, swapped

FAKES = {
    "sbatch": 'cp "$1" "$QUEUE/7"; echo "Submitted batch job 7"',
    "scontrol": '[ "$1" = requeue ] && cp "$QUEUE/started/7" "$QUEUE/7"',
    "goalgrid": f'exec {sys.executable} -m goalgrid "$@"',
}


@dataclass(frozen=True)
class FakeSlurm:
    """A queue of batch scripts by job id, and how this scheduler starts them."""

    queue: Path
    environment: dict[str, str]

    def submit(self, script: Path) -> None:
        subprocess.run(["sbatch", script], env=self.environment, check=True, capture_output=True)

    def start(self) -> subprocess.Popen[str]:
        """Start the job that waits, in a session of its own."""
        waiting, started = self.queue / "7", self.queue / "started" / "7"
        text = swapped(waiting.read_text(), "export PATH=", "export IGNORED=")  # the fakes stay first
        started.write_text(text)
        waiting.unlink()
        of_job = {"SLURM_JOB_ID": "7", "SLURM_NNODES": "1", "SLURM_CPUS_PER_TASK": "1"}
        return subprocess.Popen(
            ["bash", started], env=self.environment | of_job, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            text=True, start_new_session=True,
        )  # fmt: skip


@pytest.fixture
def slurm(tmp_path: Path) -> FakeSlurm:
    folder, queue = tmp_path / "bin", tmp_path / "queue"
    (queue / "started").mkdir(parents=True)
    folder.mkdir()
    for name, line in FAKES.items():
        (folder / name).write_text(f"#!/bin/bash\n{line}\n")
        (folder / name).chmod(0o755)
    path = f"{folder}:{os.environ['PATH']}"
    return FakeSlurm(queue, {**os.environ, "PATH": path, "QUEUE": str(queue), "PYTHONPATH": str(ROOT)})


def test_the_script_asks_for_what_the_grid_needs(tmp_path: Path, goalgrid: Goalgrid) -> None:
    grid = tmp_path / "mine.toml"
    grid.write_text(
        'name = "mine"\ndatasets = "shapes"\nrecipes = "cnn-bow"\nobjectives = "goal"\nseeds = [0, 1]\n'
        "[resources]\ncpu = 2\ngpu = 0.25\n[reliability]\ngrace_seconds = 85\n"
    )
    more = ("--time", "1-12", "--sbatch", "partition=gpu", "--sbatch", "cpus-per-task=16", "--only", "seed=0")
    for nodes in ("1", "3"):
        written = goalgrid("slurm", "mine.toml", *more, "--nodes", nodes, runs=tmp_path / "my runs", folder=tmp_path)
        assert written.returncode == 0, written.stderr
        checked = subprocess.run(["bash", "-n"], input=written.stdout, text=True, capture_output=True)
        assert checked.stderr == ""
        asked = {line for line in written.stdout.splitlines() if line.startswith("#SBATCH")}
        assert asked == {
            "#SBATCH --job-name=mine", f"#SBATCH --nodes={nodes}", "#SBATCH --ntasks-per-node=1", "#SBATCH --requeue",
            "#SBATCH --cpus-per-task=16", "#SBATCH --gpus-per-node=1", "#SBATCH --time=1-12", "#SBATCH --partition=gpu",
            "#SBATCH --signal=B:TERM@120", "#SBATCH --open-mode=append",
        }  # fmt: skip
        command = f"goalgrid run {grid} --runs '{tmp_path / 'my runs'}' --only seed=0"
        assert f"{command} {'--jobs $((SLURM_CPUS_PER_TASK / 2))' if nodes == '1' else '--address'}" in written.stdout
    plain = goalgrid("slurm", "mine.toml", runs=tmp_path, folder=tmp_path)
    assert "#SBATCH --cpus-per-task=8\n" in plain.stdout  # four jobs on a GPU, with two CPUs each


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--time", "soon"), "--time 'soon' is no time of Slurm: minutes, H:M:S or D-H:M:S"),
        (("--sbatch", "gpu"), ""),
        (("--sbatch", "my partition"), "--sbatch 'my partition', which is no NAME=VALUE, e.g. partition=gpu"),
        (("--sbatch", "signal=USR1"), "--sbatch 'signal=USR1', which the script sets itself"),
        (("--sbatch", "--time=3"), "goalgrid slurm GRID has --nodes and --time for this"),
    ],
)
def test_wrong_options_are_told(options: tuple[str, str], message: str, tmp_path: Path, goalgrid: Goalgrid) -> None:
    told = goalgrid("slurm", "demo", *options, runs=tmp_path)
    assert (told.returncode, message in told.stderr) == (2 if message else 0, True), told.stderr


@pytest.mark.slow
def test_a_job_that_meets_its_time_limit_queues_again_and_ends_the_grid(
    slurm: FakeSlurm, tmp_path: Path, goalgrid: Goalgrid
) -> None:
    home, script = Home(tmp_path / "runs"), tmp_path / "job.sh"
    axes = ("--set", 'objectives=["con_con"]', "--set", "seeds=[0,1]", *SMALL, "--set", "train.epochs=12")
    written = goalgrid("slurm", "demo", *axes, "--output", str(script), runs=home.path)
    assert f"sbatch {script}" in written.stderr, written.stderr
    slurm.submit(script)
    job = slurm.start()
    until = time.monotonic() + 600
    while not any(sum(1 for _ in trial.rows()) > 2 for trial in home.trials()):
        assert job.poll() is None, job.communicate()[0]
        assert time.monotonic() < until
        time.sleep(0.1)
    job.send_signal(signal.SIGTERM)  # the time limit: to the script alone, as --signal=B: says
    said = job.communicate(timeout=300)[0]
    assert job.returncode == 3, said
    states = json.loads(goalgrid("status", "demo", "--json", runs=home.path).stdout)["states"]
    assert states["interrupted"] > 0
    assert states["done"] < 2
    assert [path.name for path in slurm.queue.iterdir() if path.is_file()] == ["7"], said
    again = slurm.start()
    said = again.communicate(timeout=600)[0]
    assert again.returncode == 0, said
    assert [trial.done.exists() for trial in home.trials()] == [True] * 2
    resumed = [attempt.content().get("from_step", 0) for trial in home.trials() for attempt in trial.attempts()]
    assert any(resumed)
    assert [path for path in slurm.queue.iterdir() if path.is_file()] == []
