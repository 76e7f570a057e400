"""The batch script for Slurm: its form, and grids that it trains to their end through signals and requeues.

The scheduler is a fake: `sbatch`, `srun` and `scontrol` know two nodes, which are processes on this host, and queue
jobs in a folder. The test starts these jobs as Slurm would, with its signals. What the fakes say and refuse is what
Slurm 22.05 said and refused.
"""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

from goalgrid.grid.store.home import Home

from ...conftest import ROOT, SMALL, Goalgrid, swapped
from ...states import attempt
from ..conftest import PAIR
from ..processes import wait_until

FAKES = {
    "sbatch": """
        grep -q '^#SBATCH --gpus-per-node' "$1" && { echo "Invalid generic resource (gres) specification"; exit 1; }
        cp "$1" "$QUEUE/job"; echo "Submitted batch job 7"
    """,
    "scontrol": """
        case "$1 $2" in
        "requeue $JOB") cp "$QUEUE/started/job" "$QUEUE/job" ;;
        "show job") echo "   JobState=${JOB_STATE:-RUNNING} Reason=None" ;;
        "show hostnames") [ "$3" = "n[1-2]" ] && printf 'n1\\nn2\\n' ;;
        "show node") case "$3" in n1 | n2) echo "   NodeAddr=127.0.0.1 NodeHostName=other" ;; esac ;;
        *) echo "Invalid job id specified"; exit 1 ;;
        esac
    """,
    "srun": """
        for word; do case $word in
            --nodelist=* | --exclude=*) case ${word#*=} in n1 | n2) ;; *) invalid=yes ;; esac; shift ;;
            --*) shift ;;
            *) break ;;
        esac; done
        [ "$invalid" ] && { echo "srun: error: Unable to create step for job 7: Invalid node name specified"; exit 1; }
        touch "$QUEUE/joining"
        [ -e "$QUEUE/n2-is-down" ] && exec sleep 600
        exec "$@"
    """,
    "hostname": '[ "$1" = --ip-address ] && echo 127.0.1.1 || echo other',
    "goalgrid": f'exec {sys.executable} -m goalgrid "$@"',
    "ray": f"""
        [ "$1" = start ] && set -- "$@" --object-store-memory=80000000
        [ "$2" = --head ] && set -- "$@" --include-dashboard=false
        exec {sys.executable} -m ray.scripts.scripts "$@"
    """,
}
"""Programs by name; `$JOB` is the one id by which a job may queue itself again."""


@dataclass(frozen=True)
class FakeSlurm:
    """A queue for one job, and how this scheduler starts it."""

    queue: Path
    environment: dict[str, str]

    def submit(self, script: Path) -> None:
        subprocess.run(["sbatch", script], env=self.environment, check=True, capture_output=True)

    def queued(self) -> bool:
        return (self.queue / "job").exists()

    def start(self, change: Callable[[str], str] = str, **variables: str) -> "subprocess.Popen[str]":
        """Start the job that waits, in a session of its own."""
        started, script = (self.queue / "job").rename(self.queue / "started" / "job"), self.queue / "script"
        text = started.read_text()
        assert "export PATH=" in text
        script.write_text(change(swapped(text, "export PATH=", "export IGNORED=")))  # the fakes stay first
        of_job = {
            "SLURM_JOB_ID": "7", "SLURM_NNODES": "1", "SLURM_CPUS_PER_TASK": "1", "SLURM_JOB_NODELIST": "n[1-2]",
            "SLURMD_NODENAME": "n1", "JOB": "7",
        }  # fmt: skip
        with (self.queue / "said").open("w") as said:
            return subprocess.Popen(
                ["bash", script], env=self.environment | of_job | variables, stdout=said, stderr=said, text=True,
                start_new_session=True,
            )  # fmt: skip

    def ended(self, job: "subprocess.Popen[str]") -> tuple[int, str]:
        """The exit code of a job and what it said; ends the steps that it left, as Slurm does."""
        code = job.wait(600)
        with suppress(ProcessLookupError):
            os.killpg(job.pid, signal.SIGKILL)
        return code, (self.queue / "said").read_text()


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
        } | ({"#SBATCH --no-kill"} if nodes == "3" else set())  # fmt: skip
        command = f"goalgrid run {grid} --runs '{tmp_path / 'my runs'}' --only seed=0"
        assert f"{command} {'--jobs $((SLURM_CPUS_PER_TASK / 2))' if nodes == '1' else '--address'}" in written.stdout


@pytest.mark.parametrize(
    ("options", "cpus", "gpus"),
    [
        ((), 8, 1),  # four jobs share a GPU, with two CPUs each
        (("--gpus", "2"), 16, 2),
        (("--gpus", "0"), 16, 0),
        (("--gpus", "0", "--set", "resources.concurrency=3"), 6, 0),
    ],
)
def test_a_node_has_the_cpus_of_the_jobs_that_share_its_gpus(
    options: tuple[str, ...], cpus: int, gpus: int, tmp_path: Path, goalgrid: Goalgrid
) -> None:
    of_job = ("resources.gpu=0.25", "resources.cpu=2", "seeds=[0,1,2,3,4,5,6,7,8,9]", 'objectives="goal"')
    sets = [word for value in of_job for word in ("--set", value)]
    script = goalgrid("slurm", "demo", *sets, *options, runs=tmp_path).stdout
    assert f"#SBATCH --cpus-per-task={cpus}\n" in script
    assert ("gpus-per-node" in script, f"#SBATCH --gpus-per-node={gpus}\n" in script) == (gpus > 0,) * 2


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--time", "soon"), "--time 'soon' is no time of Slurm: minutes, H:M:S or D-H:M:S"),
        (("--sbatch", "gpu"), ""),
        (("--sbatch", "my partition"), "--sbatch 'my partition', which is no NAME=VALUE, e.g. partition=gpu"),
        (("--sbatch", "signal=USR1"), "--sbatch 'signal=USR1', which the script sets itself"),
        (("--sbatch", "--time=3"), "goalgrid slurm GRID has --nodes and --time for this"),
        (
            ("--set", "resources.gpu=2", "--gpus", "1"),
            "a job of this grid asks for 2 GPUs of one node: --gpus 1 is too",
        ),
    ],
)
def test_wrong_options_are_told(options: tuple[str, str], message: str, tmp_path: Path, goalgrid: Goalgrid) -> None:
    told = goalgrid("slurm", "demo", *options, runs=tmp_path)
    assert (told.returncode, message in told.stderr) == (2 if message else 0, True), told.stderr


@pytest.mark.parametrize("state", ["RUNNING", "CANCELLED"])
def test_a_signal_before_the_grid_trains_queues_the_job_again_unless_it_is_of_scancel(
    state: str, slurm: FakeSlurm, tmp_path: Path, goalgrid: Goalgrid
) -> None:
    """As a task of an array, it queues itself alone: its SLURM_JOB_ID may stand for all tasks."""
    script = tmp_path / "job.sh"
    goalgrid("slurm", "demo", "--gpus", "0", "--output", str(script), runs=tmp_path / "runs")
    slurm.submit(script)
    task = {"SLURM_ARRAY_JOB_ID": "7", "SLURM_ARRAY_TASK_ID": "2", "JOB": "7_2", "JOB_STATE": state}
    job = slurm.start(lambda text: swapped(text, "goalgrid run", "kill -TERM $$\ngoalgrid run"), **task)
    assert slurm.ended(job)[0] == 3
    assert slurm.queued() == (state == "RUNNING")


def test_a_job_is_over_when_other_jobs_train_what_is_left(slurm: FakeSlurm, pair: Home, goalgrid: Goalgrid) -> None:
    """A job that holds a trial queues itself again, so no other job has to wait for it."""
    pair.trials()[0].done.unlink()
    attempt(pair.trials()[0])
    script = pair.path / "job.sh"
    goalgrid("slurm", "demo", *PAIR, "--gpus", "0", "--output", str(script), runs=pair.path)
    slurm.submit(script)
    job = slurm.start(lambda text: swapped(text, "--jobs", "--here --mlflow-uri '' --jobs"))
    code, said = slurm.ended(job)
    assert (code, slurm.queued()) == (0, False), said
    assert "2 trials: 1 done, 1 running" in said


def two_node_job(slurm: FakeSlurm, home: Home, goalgrid: Goalgrid) -> dict[str, str]:
    """Queue a job of two nodes that trains two trials; what Slurm tells it by variables."""
    script = home.path.parent / "job.sh"
    axes = ("--set", 'objectives=["con_con"]', "--set", "seeds=[0,1]", *SMALL)
    written = goalgrid("slurm", "demo", *axes, "--nodes", "2", "--gpus", "0", "--output", str(script), runs=home.path)
    assert f"sbatch {script}" in written.stderr, written.stderr
    slurm.submit(script)
    job = str(os.getpid())  # its last digits are the head's port
    return {"SLURM_NNODES": "2", "SLURM_JOB_ID": job, "JOB": job}


@pytest.mark.slow
def test_two_nodes_end_a_grid_after_a_signal_during_their_start(
    slurm: FakeSlurm, tmp_path: Path, goalgrid: Goalgrid
) -> None:
    home = Home(tmp_path / "runs")
    told = two_node_job(slurm, home, goalgrid)
    job = slurm.start(**told)
    wait_until((slurm.queue / "joining").exists, job, seconds=600)
    job.send_signal(signal.SIGTERM)
    code, said = slurm.ended(job)
    assert (code, slurm.queued()) == (3, True), said
    assert home.trials() == []
    again = slurm.start(**told)
    code, said = slurm.ended(again)
    assert (code, slurm.queued()) == (0, False), said
    assert [trial.done.exists() for trial in home.trials()] == [True] * 2
    assert said.count("Ray runtime started") == 2, "the head, and the other node"


@pytest.mark.slow
def test_a_job_without_all_its_nodes_says_so_and_queues_again(
    slurm: FakeSlurm, tmp_path: Path, goalgrid: Goalgrid
) -> None:
    home = Home(tmp_path / "runs")
    told = two_node_job(slurm, home, goalgrid)
    (slurm.queue / "n2-is-down").touch()

    def impatient(text: str) -> str:
        assert "-lt 300" in text
        return swapped(text, "-lt 300", "-lt 10")

    code, said = slurm.ended(slurm.start(impatient, **told))
    assert (code, slurm.queued()) == (3, True), said
    assert "fewer than 2 nodes joined Ray in five minutes: the job queues again" in said
    assert home.trials() == []


@pytest.mark.slow
def test_a_job_that_meets_its_time_limit_queues_again_and_ends_the_grid(
    slurm: FakeSlurm, tmp_path: Path, goalgrid: Goalgrid
) -> None:
    home, script = Home(tmp_path / "runs"), tmp_path / "job.sh"
    axes = ("--set", 'objectives=["con_con"]', "--set", "seeds=[0,1]", *SMALL, "--set", "train.epochs=12")
    written = goalgrid("slurm", "demo", *axes, "--gpus", "0", "--output", str(script), runs=home.path)
    assert f"sbatch {script}" in written.stderr, written.stderr
    slurm.submit(script)
    job = slurm.start()
    wait_until(lambda: any(sum(1 for _ in trial.rows()) > 2 for trial in home.trials()), job, seconds=600)
    job.send_signal(signal.SIGTERM)  # the time limit: to the script alone, as --signal=B: says
    code, said = slurm.ended(job)
    assert (code, slurm.queued()) == (3, True), said
    states = json.loads(goalgrid("status", "demo", "--json", runs=home.path).stdout)["states"]
    assert states["interrupted"] > 0
    assert states["done"] < 2
    code, said = slurm.ended(slurm.start())
    assert (code, slurm.queued()) == (0, False), said
    assert [trial.done.exists() for trial in home.trials()] == [True] * 2
    resumed = [attempt.content().get("from_step", 0) for trial in home.trials() for attempt in trial.attempts()]
    assert any(resumed)
