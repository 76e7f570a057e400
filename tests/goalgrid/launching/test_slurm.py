"""The batch script for Slurm: its form, and grids that it trains to their end through signals and requeues.

The scheduler is a fake: `sbatch`, `srun` and `scontrol` know two nodes, which are processes on this host, and queue
jobs in a folder. The test starts these jobs as Slurm would, with its signals. What the fakes say and refuse is what
Slurm 22.05 said and refused.
"""

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pyarrow.parquet as pq
import pytest
import torch

from goalgrid.grid.errors import HostFault, UserError
from goalgrid.grid.gridfile import load
from goalgrid.grid.store.home import Home
from goalgrid.grid.store.kept_launch import KeptLaunch
from goalgrid.launching.host_needs import MOST, needs_of_host
from goalgrid.planning.decisions import Choice
from goalgrid.runners.launch.ray_tune import ELSEWHERE
from goalgrid.state.grid_state import GridState
from tests.program import copied, put_into_result

from ...conftest import LASTING, ROOT, SMALL, Goalgrid, swapped
from ...states import attempt
from ..conftest import PAIR, Verb
from ..processes import wait_until
from ..test_own_data import captioned

FAKES = {
    "sbatch": """
        script="${!#}"
        grep -q '^#SBATCH --gpus-per-node' "$script" && { echo "Invalid generic resource (gres)" >&2; exit 1; }
        cp "$script" "$QUEUE/job"
        if [ "$1" = --parsable ]; then echo 7; else echo "Submitted batch job 7"; fi
    """,
    "squeue": """
        case "$*" in
        *--user*) ;; # jobs of a colleague, too
        *--jobs=7*) cat "$QUEUE/tasks" 2>/dev/null; true ;;
        *) cat "$QUEUE/waiting" ;;
        esac
    """,
    "sacct": """
        [[ "$1" = -*a* ]] && cat "$QUEUE/accounts" 2>/dev/null && exit # of a colleague, too
        echo "Slurm accounting storage is disabled" >&2; exit 1
    """,
    "sinfo": 'case "$*" in *--Node*) printf "n1\\nn2\\nn3\\nn4\\n" ;; *) echo "${GRES:-gpu:4}" ;; esac',
    "scontrol": """
        [ -e "$QUEUE/away" ] && { rm "$QUEUE/away"; echo "Unable to contact slurm controller" >&2; exit 1; }
        case "$1 $2" in
        "requeue $JOB") cp "$QUEUE/started/job" "$QUEUE/job" ;;
        "show job") echo "   JobState=${JOB_STATE:-RUNNING} ExcNodeList=${EXCLUDED:-(null)} Reason=None" ;;
        "update JobId=$JOB")
            [ -e "$QUEUE/job" ] || { echo "Job is not pending nor running for job $JOB"; exit 1; }
            [ "$REFUSES" ] && { echo "Access/permission denied for job $JOB"; exit 1; }
            echo "$3" > "$QUEUE/updated" ;;
        "show hostnames") case "$3" in "n[1-2]") printf 'n1\\nn2\\n' ;; *) tr , '\\n' <<< "$3" ;; esac ;;
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
    "scancel": 'rm "$QUEUE/job"',
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
        task = variables.get("SLURM_ARRAY_TASK_ID", "")
        started, script = self.queue / "started" / "job", self.queue / f"script{task}"
        started.write_text((self.queue / "job").read_text())
        (self.queue / "job").unlink()
        text = started.read_text()
        assert "export PATH=" in text
        script.write_text(change(swapped(text, "export PATH=", "export IGNORED=")))  # the fakes stay first
        of_job = {
            "SLURM_JOB_ID": "7", "SLURM_NNODES": "1", "SLURM_CPUS_PER_TASK": "1", "SLURM_JOB_NODELIST": "n[1-2]",
            "SLURMD_NODENAME": "n1", "SLURM_JOB_PARTITION": "main", "JOB": "7",
        }  # fmt: skip
        with (self.queue / f"said{task}").open("w") as said:
            return subprocess.Popen(
                ["bash", script], env=self.environment | of_job | variables, stdout=said, stderr=said, text=True,
                start_new_session=True,
            )  # fmt: skip

    def ended(self, job: "subprocess.Popen[str]") -> tuple[int, str]:
        """The exit code of a job, or of a task of an array, and what it said; ends the steps that it left, as Slurm."""
        code = job.wait(600)
        with suppress(ProcessLookupError):
            os.killpg(job.pid, signal.SIGKILL)
        _, script = job.args  # type: ignore[misc]
        return code, (self.queue / Path(script).name.replace("script", "said")).read_text()


@pytest.fixture(autouse=True)
def slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeSlurm:
    folder, queue = tmp_path / "bin", tmp_path / "queue"
    (queue / "started").mkdir(parents=True)
    folder.mkdir()
    for name, line in FAKES.items():
        (folder / name).write_text(f"#!/bin/bash\n{line}\n")
        (folder / name).chmod(0o755)
    path = f"{folder}:{os.environ['PATH']}"
    monkeypatch.setenv("PATH", path)
    monkeypatch.setenv("QUEUE", str(queue))
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
            "#SBATCH --signal=B:TERM@120", "#SBATCH --open-mode=append", "#SBATCH --mem=19G",
        } | ({"#SBATCH --no-kill"} if nodes == "3" else set())  # fmt: skip
        (launch,) = Home(tmp_path / "my runs").grid("mine").kept_launches()
        command = f"goalgrid run --launch '{launch.path}' --runs '{tmp_path / 'my runs'}' --only seed=0"
        assert f"{command} {'--jobs $((SLURM_CPUS_PER_TASK / 2))' if nodes == '1' else '--address'}" in written.stdout


@pytest.mark.parametrize(
    ("options", "cpus", "gpus"),
    [
        ((), 8, 1),  # four jobs share a GPU, with two CPUs each
        (("--gpus", "2"), 16, 2),
        (("--set", "resources.gpu=0"), 16, 0),
        (("--gpus", "0", "--set", "resources.gpu=0", "--set", "resources.concurrency=3"), 6, 0),
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


def test_a_job_asks_for_the_cpus_that_feed_its_gpu_and_for_trials_that_keep_it_busy(
    tmp_path: Path, goalgrid: Goalgrid
) -> None:
    large = ("--set", 'recipes=["cnn-bow"]', "--set", "model.image.size=256")  # small views are decoded once
    words = (*large, "--set", 'objectives="goal"', "--set", "seeds=[0,1,2,3,4]")
    grid_state = GridState.of(load("flickr8k", words[1::2]), Home(tmp_path))
    need = needs_of_host(grid_state, Choice(), "h100", gpus=2)
    sharing, cpus = need.sharing or 0, need.cpus
    assert sharing > 1
    assert 16 < sharing * cpus <= MOST
    script = goalgrid("slurm", "flickr8k", *words, "--device", "h100", "--gpus", "2", runs=tmp_path).stdout
    jobs = 2 * sharing
    assert f"#SBATCH --cpus-per-task={cpus * jobs}\n" in script
    assert f" --jobs $((SLURM_CPUS_PER_TASK / {cpus})) &" in script
    (grid,) = tmp_path.glob("grids/*/launches/*/grid.toml")
    assert f"cpu = {cpus}\n" in grid.read_text()
    unnamed = goalgrid("slurm", "flickr8k", *words, "--device", "24GB", runs=tmp_path)
    assert "--device '24GB' gives only a memory size" in unnamed.stderr


def test_without_a_named_gpu_cpus_and_memory_come_from_the_plan_too(tmp_path: Path, verb: Verb) -> None:
    home, large = Home(tmp_path), ("--set", 'recipes=["cnn-bow"]', "--set", "model.image.size=256")
    words = ("slurm", "flickr8k", *large, "--set", 'objectives="goal"')
    need = needs_of_host(
        GridState.of(load("flickr8k", [*large[1::2], 'objectives="goal"']), home), Choice(), "", gpus=1
    )
    assert need.cpus > 1
    jobs = need.sharing or 0
    planned = verb(*words, runs=home)
    assert f"#SBATCH --cpus-per-task={need.cpus * jobs}\n" in planned.stdout
    assert f"#SBATCH --mem={need.memory(jobs)}\n" in planned.stdout
    assert "note: CPUs and memory are estimated for an a100-80; name your GPU, e.g. --device h100" in planned.stderr
    settled = verb(*words, "--set", "resources.cpu=1", "--sbatch", "mem-per-cpu=4G", runs=home).stdout
    assert f"#SBATCH --cpus-per-task={jobs}\n" in settled
    assert "--mem=" not in settled
    assert "--mem=7G" in verb("slurm", "demo", runs=home).stdout, "eight small trials on a CPU: 0.9 and 0.5 GB each"


def test_gpus_without_work_are_told_before_a_job_takes_them(tmp_path: Path, verb: Verb) -> None:
    home, six = Home(tmp_path), ("--set", 'objectives=["con_con","sig-ms_cir"]', "--set", "seeds=[0,1,2]")
    priced = "--device", "h100", "--hourly", "2"
    enough = "as fast on 6 GPUs for 6 jobs, each a trial or a chain of trials"
    nodes = verb("slurm", "demo", *six, "--nodes", "2", "--gpus", "8", runs=home).stderr
    assert f"seeds=0+1+2: 6 of 16 GPUs will be busy; {enough}\n" in nodes
    tasks = verb("slurm", "demo", *six, "--array", "8", "--gpus", "1", *priced, runs=home).stderr
    assert "on 8 GPUs, 6 of them busy: " in tasks
    assert f"{enough}, less than 0.01 at 2 per GPU-hour" in tasks
    assert "GPUs will be busy" not in verb("slurm", "demo", *six, "--gpus", "6", runs=home).stderr
    with pytest.raises(UserError, match="--hourly needs the type of GPU"):
        verb("slurm", "demo", "--hourly", "2", runs=home)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--time", "soon"), "--time 'soon' is not a Slurm time: use minutes, H:M:S or D-H:M:S"),
        (
            ("--time", "12:00"),
            "Slurm reads --time 12:00 as 12 minutes. Write 12:00:00 for hours and minutes, or 12 for 12 minutes.",
        ),
        (("--mem", "much"), "--mem 'much' is not a Slurm size: use megabytes, or e.g. 32G."),
        (("--sbatch", "gpu"), ""),
        (("--sbatch", "my partition"), "--sbatch 'my partition' is not NAME=VALUE, e.g. partition=gpu"),
        (("--sbatch", "signal=USR1"), "--sbatch 'signal=USR1' is set by the script itself"),
        (("--sbatch", "--time=3"), "use the options --nodes and --time of goalgrid slurm instead"),
        (
            ("--set", "resources.gpu=2", "--gpus", "1"),
            "a trial of this grid needs 2 GPUs of one node: --gpus 1 is too",
        ),
        (
            ("--time", "1:30"),
            "Slurm reads --time 1:30 as 1 minute. Write 1:30:00 for hours and minutes, or 1 for 1 minute.",
        ),
        (
            ("--set", "resources.cpu=4", "--sbatch", "cpus-per-task=3"),
            "--sbatch cpus-per-task=3 is too few: a trial of this grid needs 4 CPUs.",
        ),
        (("--sbatch", "array=1-x"), "--array '1-x' is not a Slurm array: use e.g. 1-8, 1-40%4, 0-9:2 or 1,3,5."),
        (("--sbatch", "array=9-1"), "--array '9-1' has no task."),
        (("--set", "resources.gpu=0.5", "--gpus", "0"), "needs 0.5 GPUs of one node: --gpus 0 is too few"),
        (
            ("--account", "me\ncurl evil.example"),
            "--account 'me\\ncurl evil.example' contains a line break or another control",
        ),
        (("--log", "a\rb.txt"), "--output 'a\\rb.txt' contains a line break or another control character"),
        (("--sbatch", "comment=a\x0bb"), "--comment 'a\\x0bb' contains a line break"),
        (("--setup", "/dev/zero"), "--setup: cannot read /dev/zero: [Errno 22] it is not a regular file"),
        (("--setup", sys.executable), "--setup: cannot read"),
        (("--only", "nosuch=x"), "unknown axis 'nosuch' in --only 'nosuch=x'"),
        (("--only", "objective=nosuch"), "--only 'objective=nosuch' names none of the grid's trials."),
    ],
)
def test_wrong_options_are_told(options: tuple[str, str], message: str, tmp_path: Path, goalgrid: Goalgrid) -> None:
    told = goalgrid("slurm", "demo", *options, runs=tmp_path)
    assert (told.returncode, message in told.stderr) == (2 if message else 0, True), told.stderr


@pytest.mark.parametrize(
    ("place", "said"),
    [
        (("--root", "/nowhere"), "root of data set 'flickr8k': no folder at /nowhere"),
        (("--root", "/nowhere", "--device", "h100"), "root of data set 'flickr8k': no folder at /nowhere"),
        (("--weights", "microsoft/resnet-152=/nowhere"), "weights 'microsoft/resnet-152': nothing is at /nowhere."),
    ],
)
def test_folders_that_are_missing_are_told_before_the_job(
    place: tuple[str, ...], said: str, tmp_path: Path, verb: Verb
) -> None:
    grid = "flickr8k", "--set", 'recipes=["vsepp-r152"]'
    with pytest.raises(UserError, match=re.escape(said)):
        verb("slurm", *grid, *place, runs=Home(tmp_path))
    without = verb("slurm", *grid, runs=Home(tmp_path))
    assert "note: no root for data set 'flickr8k'." in without.stderr
    assert "#SBATCH --time=24:00:00" in without.stdout


def test_what_clusters_ask_for_stands_in_the_script(tmp_path: Path, goalgrid: Goalgrid) -> None:
    (tmp_path / "setup.sh").write_text("module load cuda\nconda activate me\n")
    asked = ("--array", "3", "--mem", "32G", "--account", "vision", "--log", "logs/%j.txt", "--setup", "setup.sh")
    script = goalgrid("slurm", "demo", *asked, runs=tmp_path, folder=tmp_path).stdout
    for line in ("--array=1-3", "--mem=32G", "--account=vision", "--output=logs/%j.txt"):
        assert f"\n#SBATCH {line}\n" in script
    assert script.startswith("#!/bin/bash -l\n")
    assert "\nmodule load cuda\nconda activate me\nset +eu" in script
    more = goalgrid("slurm", "demo", "--mem", "1G", "--sbatch", "mem=64G", runs=tmp_path).stdout
    assert re.findall("mem=.*", more) == ["mem=64G"]


def test_values_with_blanks_and_quotes_are_one_word_to_sbatch(tmp_path: Path, verb: Verb) -> None:
    asked = ("--log", "my logs/%j.txt", "--sbatch", "comment=it's #1", "--sbatch", r"nodelist=a\b", "--gpus", "0")
    script = verb("slurm", "demo", *asked, runs=Home(tmp_path)).stdout
    for line in ("--output='my logs/%j.txt'", """--comment='it'"'"'s #1'""", r"--nodelist='a\\b'"):
        assert f"\n#SBATCH {line}\n" in script


def test_a_partition_without_gpus_is_asked_for_none(
    tmp_path: Path, goalgrid: Goalgrid, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "gpus-per-node=1" in goalgrid("slurm", "flickr8k", runs=tmp_path).stdout
    monkeypatch.setenv("GRES", "(null)")
    assert "gpus-per-node" not in goalgrid("slurm", "flickr8k", runs=tmp_path).stdout
    assert "gpus-per-node=2" in goalgrid("slurm", "flickr8k", "--gpus", "2", runs=tmp_path).stdout


@pytest.mark.parametrize("option", ["gres=gpu:a100:2", "gpus-per-node=a100:2", "gres=tmp:9,gpu:2", "gpus-per-task=2"])
def test_gpus_that_options_of_sbatch_name_are_asked_for_once_and_counted(
    option: str, tmp_path: Path, verb: Verb
) -> None:
    of_job = ("resources.gpu=0.5", "resources.cpu=3", 'objectives="goal"', "seeds=[0,1,2,3,4]")
    sets = [word for value in of_job for word in ("--set", value)]
    script = verb("slurm", "demo", *sets, "--sbatch", option, runs=Home(tmp_path)).stdout
    assert re.findall("#SBATCH --(g.*)", script) == [option]
    assert "#SBATCH --cpus-per-task=12\n" in script, "two jobs on each GPU, of three CPUs"


@pytest.mark.parametrize(
    ("options", "jobs"),
    [
        (("--array", "4"), 2),  # of 8 trials
        (("--array", "3"), 3),
        (("--array", "8"), 1),
        (("--sbatch", "array=1-40%4"), 2),
        (("--sbatch", "array=0-9:2,20"), 2),  # six tasks
        (("--nodes", "2"), 4),
        (("--nodes", "2", "--array", "2"), 2),
        ((), 8),
    ],
)
def test_hosts_ask_for_the_cpus_of_their_part_of_the_grid(
    options: tuple[str, ...], jobs: int, tmp_path: Path, verb: Verb
) -> None:
    eight = ("--set", 'objectives=["con_con","sig-ms_cir"]', "--set", "seeds=[0,1,2,3]", "--set", "resources.cpu=3")
    script = verb("slurm", "demo", *eight, "--gpus", "0", *options, runs=Home(tmp_path)).stdout
    assert f"#SBATCH --cpus-per-task={3 * jobs}\n" in script


def test_generated_data_ask_for_no_gpu_unless_it_is_named(tmp_path: Path, verb: Verb) -> None:
    assert "gpus-per-node" not in verb("slurm", "demo", runs=Home(tmp_path)).stdout
    assert "gpus-per-node=1" in verb("slurm", "demo", "--gpus", "1", runs=Home(tmp_path)).stdout
    assert "gpus-per-node=1" in verb("slurm", "demo", "--set", "resources.gpu=0.5", runs=Home(tmp_path)).stdout
    assert "gpus-per-node=1" in verb("slurm", "flickr8k", runs=Home(tmp_path)).stdout


def command_in(script: str) -> list[str]:
    """The words of the script's line that trains, as a shell takes them."""
    (line,) = [line for line in script.splitlines() if line.startswith("goalgrid run")]
    return shlex.split(line.removesuffix(" &").replace("$((", "'$((").replace("))", "))'"))


def test_the_options_of_a_run_reach_the_job(tmp_path: Path, verb: Verb) -> None:
    home, told = Home(tmp_path), ("--mlflow-uri", "http://mlflow:5000", "--notify", "mail me", "--jobs", "2")
    script = verb("slurm", "demo", *told, "--stale", "--allow-leak", "--force", runs=home).stdout
    (launch,) = home.grid("demo").kept_launches()
    words = ["--launch", str(launch.path), "--runs", str(tmp_path), "--stale", *told[:4], "--allow-leak"]
    assert command_in(script) == ["goalgrid", "run", *words, "$force"]
    assert "#SBATCH --cpus-per-task=2\n" in script
    assert '[ "${SLURM_RESTART_COUNT:-0}" -gt 0 ] || force=--force' in script
    with pytest.raises(
        UserError, match="--force cannot be used with an array: each task would retrain what others have just done"
    ):
        verb("slurm", "demo", "--force", "--array", "2", runs=home)


def test_the_tasks_of_an_array_do_not_write_one_mlflow_database(tmp_path: Path, verb: Verb) -> None:
    home = Home(tmp_path)
    assert command_in(verb("slurm", "demo", "--array", "2", runs=home).stdout)[6:8] == ["--mlflow-uri", ""]
    named = verb("slurm", "demo", "--array", "2", "--mlflow-uri", "http://here", runs=home).stdout
    assert command_in(named)[6:8] == ["--mlflow-uri", "http://here"]
    assert "--mlflow-uri" not in verb("slurm", "demo", runs=home).stdout


def test_one_job_trains_several_grids(slurm: FakeSlurm, tmp_path: Path, verb: Verb) -> None:
    home, mine = Home(tmp_path / "runs"), tmp_path / "mine.toml"
    axes = 'datasets = "shapes"\nrecipes = "cnn-bow"\nobjectives = ["con_con"]\nseeds = [0, 1, 2]\n'
    mine.write_text(f'name = "mine"\n{axes}[resources]\ncpu = 2\n[reliability]\ngrace_seconds = 85\n')
    named = ("demo", str(mine), "--only", "seed=0", "--only", "seed=1")
    script = verb("slurm", *named, runs=home).stdout
    assert "#SBATCH --job-name=demo+mine\n" in script
    assert "#SBATCH --signal=B:TERM@120\n" in script
    assert "#SBATCH --cpus-per-task=16\n" in script, "eight jobs, of the grid that asks for most"
    folders = [folder.path for name in ("demo", "mine") for folder in home.grid(name).kept_launches()]
    launches = [word for folder in folders for word in ("--launch", str(folder))]
    words = [*launches, "--runs", str(home.path), "--only", "seed=0 | seed=1"]
    assert command_in(script) == ["goalgrid", "run", *words, "--jobs", "$((SLURM_CPUS_PER_TASK / 2))"]
    assert "submitted as job 7" in verb("slurm", *named, "--submit", runs=home).stderr
    assert [home.grid(name).slurm.read_text() for name in ("demo", "mine")] == ["7\n", "7\n"]


@pytest.mark.skipif(torch.cuda.is_available(), reason="the lent GPUs are some that torch does not see")
def test_lent_gpus_that_do_not_work_are_told_before_anything_trains_on_cpus(
    tmp_path: Path, verb: Verb, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLURM_GPUS_ON_NODE", "4")
    monkeypatch.setenv("SLURMD_NODENAME", "n7")
    one = (*PAIR, "--set", 'objectives=["con_con"]', "--here", "--mlflow-uri", "")
    told = r"Slurm allocated 4 GPUs \(SLURM_GPUS_ON_NODE\), but torch sees none: .* --exclude=n7\. Or train on CPUs"
    with pytest.raises(UserError, match=told) as without_cuda:
        verb("run", "demo", *one, runs=Home(tmp_path))
    with monkeypatch.context() as patch:
        patch.setattr(torch.backends.cuda, "is_built", lambda: True)
        with pytest.raises(HostFault, match=r"check nvidia-smi there.* Exclude this node: sbatch --exclude=n7"):
            verb("run", "demo", *one, runs=Home(tmp_path))
    assert without_cuda.type is UserError, "with a torch for CPUs no other node is better"
    assert Home(tmp_path).trials() == []
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,2")
    with pytest.raises(UserError, match="Slurm allocated 2 GPUs"):
        verb("run", "demo", *one, runs=Home(tmp_path))
    assert verb("run", "demo", *one, "--set", "resources.gpu=0", runs=Home(tmp_path)).exit_code == 0


@pytest.mark.parametrize("noted", ["\xff", "pipe", "7;rm\n-x\n"])
def test_what_is_no_id_in_the_list_of_jobs_is_passed_over(
    noted: str, slurm: FakeSlurm, pair: Home, goalgrid: Goalgrid
) -> None:
    path = pair.grid("demo").slurm
    os.mkfifo(path) if noted == "pipe" else path.write_bytes(noted.encode("latin-1"))
    said = goalgrid("status", "demo", runs=pair.path)
    assert "2 trials: 2 done" in said.stdout
    assert "slurm:" not in said.stdout


def test_a_submitted_script_has_its_jobs_in_the_status(slurm: FakeSlurm, pair: Home, goalgrid: Goalgrid) -> None:
    refused = goalgrid("slurm", "demo", *PAIR, "--gpus", "1", "--submit", runs=pair.path)
    assert (refused.returncode, "sbatch: Invalid generic resource (gres)." in refused.stderr) == (2, True)
    sent = goalgrid("slurm", "demo", *PAIR, "--gpus", "0", "--submit", runs=pair.path)
    assert sent.stderr.startswith("submitted as job 7: "), sent.stderr
    assert slurm.queued()
    waiting = "7_1|RUNNING|None\n7_2|RUNNING|None\n7_[3-9%2]|PENDING|Resources\n70|RUNNING|None\n"
    (slurm.queue / "waiting").write_text(waiting)
    said = goalgrid("status", "demo", runs=pair.path).stdout
    assert "\nslurm: 2 RUNNING (7_1, 7_2)\nslurm: 1 PENDING (Resources) (7_[3-9%2])\n" in said
    (slurm.queue / "waiting").write_text("")
    assert "\nslurm: 1 ended (7)\n" in goalgrid("status", "demo", runs=pair.path).stdout
    (slurm.queue / "accounts").write_text("7_1|COMPLETED\n7_2|TIMEOUT\n")
    assert json.loads(goalgrid("status", "demo", "--json", runs=pair.path).stdout)["slurm"] == [
        "slurm: 1 COMPLETED (7_1)",
        "slurm: 1 TIMEOUT (7_2)",
    ]


def test_a_submitted_grid_is_known_by_its_name_while_its_job_waits(
    slurm: FakeSlurm, tmp_path: Path, verb: Verb
) -> None:
    home, mine = Home(tmp_path / "runs"), tmp_path / "mine.toml"
    axes = 'datasets = "shapes"\nrecipes = "cnn-bow"\nobjectives = ["con_con"]\nseeds = [0]\n'
    mine.write_text(f'name = "mine"\n{axes}')
    verb("slurm", str(mine), "--gpus", "0", "--submit", runs=home)
    (slurm.queue / "waiting").write_text("7|PENDING|Priority\n")
    said = verb("status", "mine", runs=home).stdout
    assert "mine: 1 trial: 1 planned\n" in said
    assert "slurm: 1 PENDING (Priority) (7)\n" in said


def test_a_host_without_slurm_says_so(
    pair: Home, goalgrid: Goalgrid, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    goalgrid("slurm", "demo", *PAIR, "--gpus", "0", "--submit", runs=pair.path)
    monkeypatch.setenv("PATH", str(tmp_path))
    said = goalgrid("status", "demo", runs=pair.path)
    assert "slurm: the states of its jobs are unknown: squeue is not on this host.\n" in said.stdout
    refused = goalgrid("slurm", "demo", "--gpus", "0", "--submit", runs=pair.path)
    assert (refused.returncode, "sbatch is not on this host" in refused.stderr) == (2, True)


@pytest.mark.slow
def test_an_array_shares_the_trials_without_a_repeat(slurm: FakeSlurm, tmp_path: Path, goalgrid: Goalgrid) -> None:
    home, tasks = Home(tmp_path / "runs"), ("1", "2", "3")
    axes = ("--set", 'objectives=["con_con","con_nca","sig_con","lin_con"]', "--set", "seeds=[0,1,2]", *SMALL)
    goalgrid("slurm", "demo", *axes, "--gpus", "0", "--array", "3", "--submit", runs=home.path)
    jobs = []
    for task in tasks:
        slurm.submit(home.grid("demo").path / "job.sh")
        told = {"SLURM_ARRAY_JOB_ID": "7", "SLURM_ARRAY_TASK_ID": task, "JOB": f"7_{task}"}
        jobs.append(slurm.start(lambda text: swapped(text, "--jobs", "--here --mlflow-uri '' --jobs"), **told))
    for job in jobs:
        code, said = slurm.ended(job)
        assert code == 0, said
    assert [trial.done.exists() for trial in home.trials()] == [True] * 12
    assert [len(trial.attempts()) for trial in home.trials()] == [1] * 12
    assert not slurm.queued()


@pytest.mark.gate
def test_tasks_of_an_array_train_one_grid_whatever_is_edited_between_their_starts(
    slurm: FakeSlurm, tmp_path: Path, goalgrid: Goalgrid
) -> None:
    """On a node where this user never named the code."""
    home, grid, losses = Home(tmp_path / "runs"), tmp_path / "mine.toml", tmp_path / "losses.py"
    losses.write_text(
        "import torch, goalgrid\n\n"
        '@goalgrid.objective("mine", margin=goalgrid.Parameter(0.2, "least lead of the positive"))\n'
        "def mine(t, *, margin):\n    return torch.relu(t.s_neg - t.s_pos + margin)\n"
    )
    axes = 'datasets = "shapes"\nrecipes = "cnn-bow"\nobjectives = ["mine"]\nseeds = [0, 1]\n'
    grid.write_text(f'name = "mine"\nuses = ["losses.py"]\n{axes}')
    sets = (*SMALL[:-2], "--set", "name=mine")
    sent = goalgrid("slurm", str(grid), *sets, "--gpus", "0", "--array", "2", "--submit", runs=home.path)
    assert sent.returncode == 0, sent.stderr

    def trains(seed: int) -> tuple[int, str]:
        slurm.submit(home.grid("mine").path / "job.sh")
        only = f"--here --only seed={seed} --jobs"
        task = {"SLURM_ARRAY_JOB_ID": "7", "SLURM_ARRAY_TASK_ID": str(seed), "JOB": f"7_{seed}"}
        fresh = {"HOME": str(tmp_path / f"home{seed}"), "XDG_CONFIG_HOME": "", "XDG_CACHE_HOME": ""}
        return slurm.ended(slurm.start(lambda text: swapped(text, "--jobs", only), **task, **fresh))

    code, said = trains(0)
    assert code == 0, said
    grid.write_text(swapped(grid.read_text(), "[0, 1]", "[0, 1, 2]"))
    losses.write_text(swapped(losses.read_text(), "torch.relu(t", "2 * torch.relu(t"))
    code, said = trains(1)
    assert code == 0, said
    records = [pq.read_table(trial.record).to_pylist()[0] for trial in home.trials()]
    assert sorted(record["seed"] for record in records) == [0, 1]
    assert len({record["code_fingerprint"] for record in records}) == 1
    assert "2 trials: 2 done" in goalgrid("status", "mine", runs=home.path).stdout


@pytest.mark.gate
def test_a_job_copies_the_data_to_the_disk_of_its_node(slurm: FakeSlurm, tmp_path: Path, goalgrid: Goalgrid) -> None:
    home, root, disk = Home(tmp_path / "runs"), tmp_path / "my $data", tmp_path / "disk"
    grid = captioned(root, [f"a cat on grass {number}" for number in range(16)])[:-1]
    sent = goalgrid("slurm", *grid, "--set", "name=cats", "--gpus", "0", "--stage", "--submit", runs=home.path)
    assert sent.returncode == 0, sent.stderr

    def hiding(text: str) -> str:
        """The script of a job that meets no data but its copy."""
        script = swapped(text, "  # a signal ends the wait", f"\nmv {shlex.quote(str(root))} {tmp_path}/away\nls $disk")
        return swapped(script, "--jobs", "--here --mlflow-uri '' --jobs")

    code, said = slurm.ended(slurm.start(hiding, SLURM_TMPDIR=str(disk)))
    assert code == 0, said
    assert "mine" in said.splitlines()
    assert list(disk.iterdir()) == []
    assert f'root = "{root}"' in home.grid("cats").grid.read_text()
    assert [trial.done.exists() for trial in home.trials()] == [True]


@pytest.mark.gate
def test_data_may_lie_where_a_variable_of_the_job_says(slurm: FakeSlurm, tmp_path: Path, goalgrid: Goalgrid) -> None:
    home, setup = Home(tmp_path / "runs"), tmp_path / "setup.sh"
    grid = captioned(tmp_path / "data", [f"a cat on grass {number}" for number in range(16)])[:-3]
    setup.write_text(f"cp -r {tmp_path}/data $SLURM_TMPDIR/photos\n")
    options = ("--set", "name=cats", "--root", "mine=$SLURM_TMPDIR/photos", "--setup", str(setup), "--gpus", "0")
    sent = goalgrid("slurm", *grid, *options, "--submit", runs=home.path)
    assert sent.returncode == 0, sent.stderr
    assert (
        "note: root of data set 'mine': $SLURM_TMPDIR/photos, but $SLURM_TMPDIR is not set on this host" in sent.stderr
    )
    (tmp_path / "disk").mkdir()
    here = {"SLURM_TMPDIR": str(tmp_path / "disk")}
    code, said = slurm.ended(slurm.start(lambda text: swapped(text, "--jobs", "--here --mlflow-uri '' --jobs"), **here))
    assert code == 0, said
    assert [trial.done.exists() for trial in home.trials()] == [True]


@pytest.mark.parametrize(
    ("grids", "said"),
    [
        (("demo",), "--stage copies the folders given by --root, but no data set of the grid has one."),
        (("demo", "flickr8k"), "--stage needs grids with the same data folders"),
    ],
)
def test_data_without_a_folder_are_not_staged(grids: tuple[str, ...], said: str, tmp_path: Path, verb: Verb) -> None:
    here = ("--root", f"flickr8k={tmp_path}") if len(grids) > 1 else ()
    with pytest.raises(UserError, match=re.escape(said)):
        verb("slurm", *grids, *here, "--stage", runs=Home(tmp_path))


@pytest.mark.gate
def test_jobs_run_the_code_of_the_checkout_as_it_was_when_they_were_submitted(slurm: FakeSlurm, tmp_path: Path) -> None:
    code, home = copied(tmp_path / "a checkout"), Home(tmp_path / "my runs")
    schedules, untracked = code / "runners" / "training" / "optimizers.py", code / "goalgrid" / "added.py"
    untracked.write_text("")
    (code / ".gitignore").write_text("__pycache__/\n")
    as_us = ("-c", "user.name=us", "-c", "user.email=us@example.org")
    for words in (("init", "-q"), ("add", "--all"), (*as_us, "commit", "-qm", "all")):
        subprocess.run(["git", *words], cwd=code, check=True)
    slurm.environment.update(PYTHONPATH=str(code), XDG_CACHE_HOME=str(tmp_path / "cache"))
    words = ["slurm", "demo", *PAIR, "--gpus", "0", "--submit", "--runs", str(home.path)]
    sent = subprocess.run(
        [sys.executable, "-m", "goalgrid", *words], cwd=code, env=slurm.environment, capture_output=True
    )
    assert sent.returncode == 0, sent.stderr
    (folder,) = home.grid("demo").kept_launches()
    put_into_result("learning_rate", "2", schedules)
    code_now = swapped(FAKES["goalgrid"], "-m goalgrid", "-c 'from goalgrid.cli.app import main; main()'")
    (tmp_path / "bin" / "goalgrid").write_text(f"#!/bin/bash\n{code_now}\n")
    with tempfile.TemporaryDirectory(prefix="gg-", dir="/tmp") as disk:
        job = slurm.start(lambda text: swapped(text, "--jobs", "--mlflow-uri '' --jobs"), RAY_TMPDIR=disk)
        ended, said = slurm.ended(job)
        assert ended == 0, said
        assert list(Path(disk).glob("goalgrid-*")) == []
    launch = KeptLaunch.read(folder)
    records = [pq.read_table(trial.record).to_pylist()[0] for trial in home.trials()]
    assert {record["trial_id"]: record["code_fingerprint"] for record in records} == launch.code
    sources = [json.loads(record["environment"])["source"] for record in records]
    assert sources == [{"commit": launch.made_by["commit"], "dirty": False}] * 2
    with tarfile.open(folder.snapshot) as archive:
        assert {"goalgrid/added.py", "grid/presets/demo.toml", "goalgrid/grid"} <= set(archive.getnames())
        assert not [name for name in archive.getnames() if "__pycache__" in name]
    with folder.snapshot.open("ab") as file:
        file.write(b"more")
    with pytest.raises(UserError, match="was changed: its content is not what its name says"):
        KeptLaunch.read(folder)
    slurm.submit(home.grid("demo").path / "job.sh")
    ended, said = slurm.ended(slurm.start())
    assert (ended, "n1 cannot unpack the code of the launch: the job queues again" in said) == (3, True), said
    with (code / "goalgrid" / "big.bin").open("wb") as large:
        large.truncate(2**27)
    refused = subprocess.run(
        [sys.executable, "-m", "goalgrid", *words], cwd=code, env=slurm.environment, capture_output=True
    )
    assert refused.returncode == 2
    assert (
        b"MB of files that git does not ignore, e.g. goalgrid/big.bin; a launch saves at most 64 MB" in refused.stderr
    )


def test_without_a_checkout_there_is_no_snapshot(tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(copied(tmp_path / "installed"))}
    command = [sys.executable, "-m", "goalgrid", "slurm", "demo", "--gpus", "0", "--snapshot", "--runs", str(tmp_path)]
    refused = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert (refused.returncode, "--snapshot saves the code of a git checkout" in refused.stderr) == (2, True)


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


def test_a_signal_while_the_lines_of_setup_run_queues_the_job_again(
    slurm: FakeSlurm, tmp_path: Path, goalgrid: Goalgrid
) -> None:
    (tmp_path / "setup.sh").write_text("kill -TERM $$\n")
    script = tmp_path / "job.sh"
    options = ("--gpus", "0", "--setup", str(tmp_path / "setup.sh"), "--output", str(script))
    goalgrid("slurm", "demo", *options, runs=tmp_path / "runs")
    slurm.submit(script)
    assert slurm.ended(slurm.start())[0] == 3
    assert slurm.queued()


def test_a_job_queues_again_whatever_the_lines_of_setup_set(
    slurm: FakeSlurm, tmp_path: Path, goalgrid: Goalgrid
) -> None:
    (tmp_path / "setup.sh").write_text("set -euo pipefail\n")
    script = tmp_path / "job.sh"
    options = ("--gpus", "0", "--setup", str(tmp_path / "setup.sh"), "--output", str(script))
    goalgrid("slurm", "demo", *options, runs=tmp_path / "runs")
    slurm.submit(script)
    code, said = slurm.ended(slurm.start(lambda text: swapped(text, "goalgrid run", "bash -c 'exit 3'")))
    assert (code, slurm.queued()) == (3, True), said


@pytest.fixture
def ending(slurm: FakeSlurm, tmp_path: Path, goalgrid: Goalgrid) -> Callable[..., tuple[int, str]]:
    """Run a job whose goalgrid ends with a code, a number or in terms of bash: the job's code, and what it said."""
    script = tmp_path / "job.sh"
    goalgrid("slurm", "demo", "--gpus", "0", "--output", str(script), runs=tmp_path / "runs")

    def run(code: int | str, change: Callable[[str], str] = str, **variables: str) -> tuple[int, str]:
        slurm.submit(script)
        ends = f"bash -c 'exit {code}'"
        return slurm.ended(slurm.start(lambda text: change(swapped(text, "goalgrid run", ends)), **variables))

    return run


@pytest.mark.parametrize(
    ("code", "variables", "job", "queued", "said"),
    [
        (0, {}, 0, False, ""),
        (6, {}, 0, False, ""),
        (2, {}, 2, False, ""),
        (4, {}, 4, False, ""),
        (3, {}, 3, True, "the program ended with 3: the job queues again\n"),
        (1, {}, 3, True, "the program ended with 1: the job queues again\n"),
        (137, {"SLURM_RESTART_COUNT": "2"}, 3, True, "the program ended with 137: the job queues again\n"),
        (137, {"SLURM_RESTART_COUNT": "3"}, 137, False, "ended with 137 within ten minutes, after 3 requeues: the job"),
        (5, {}, 3, True, "n1 trains nothing: the job queues again, without n1\n"),
        (5, {"EXCLUDED": "n2"}, 3, True, "n1 trains nothing: the job queues again, without n2,n1\n"),
        (5, {"EXCLUDED": "n2,n3,n4"}, 5, False, "n1 trains nothing: the job ends. Once that is mended, or with other"),
        (5, {"EXCLUDED": "n2,n3", "SLURM_RESTART_COUNT": "2"}, 5, False, "sbatch --exclude=n2,n3,n1 FILE\n"),
        (5, {"REFUSES": "yes"}, 3, False, "the job ends. Submit it again: sbatch --exclude=n1 FILE\n"),
    ],
)
def test_what_becomes_of_a_job_by_the_exit_code_of_goalgrid(
    code: int, variables: dict[str, str], job: int, queued: bool, said: str,
    slurm: FakeSlurm, ending: Callable[..., tuple[int, str]],
) -> None:  # fmt: skip
    ended, talk = ending(code, **variables)
    assert (ended, slurm.queued(), said in talk) == (job, queued, True), talk
    updated = slurm.queue / "updated"
    assert updated.exists() == ("without" in said)
    if updated.exists():
        assert updated.read_text() == f"ExcNodeList={said.rpartition(' ')[2]}"


@pytest.mark.parametrize(
    ("others", "dependency"),
    [
        ("7_1 RUNNING (null)\n7_3 PENDING (null)\n7_4 RUNNING (null)\n", "afterany:7_1:7_4"),
        ("7_1 RUNNING (null)\n7_3 PENDING afterany:7_1(unfulfilled)\n", ""),  # task 3 trains what task 1 may leave
        ("7_3 PENDING (null)\n", ""),  # processes outside the array train
    ],
)
def test_one_task_waits_for_those_that_train_what_is_left(
    others: str, dependency: str, slurm: FakeSlurm, ending: Callable[..., tuple[int, str]]
) -> None:
    (slurm.queue / "tasks").write_text(f"{others}7_2 RUNNING (null)\n")
    task = {"SLURM_ARRAY_JOB_ID": "7", "SLURM_ARRAY_TASK_ID": "2", "JOB": "7_2"}
    code, said = ending(6, **task)
    assert (code, slurm.queued()) == ((3, True) if dependency else (0, False)), said
    updated = slurm.queue / "updated"
    assert (updated.read_text() if updated.exists() else "") == (f"Dependency={dependency}\n" if dependency else "")


def test_a_job_tells_goalgrid_that_it_can_go_on_without_its_only_node(
    slurm: FakeSlurm, ending: Callable[..., tuple[int, str]]
) -> None:
    code, said = ending(f"${{{ELSEWHERE}:+5}}")
    assert (code, slurm.queued()) == (3, True), said
    assert "n1 trains nothing: the job queues again, without n1\n" in said


def test_a_job_killed_after_ten_minutes_queues_again_however_often_it_did(
    slurm: FakeSlurm, ending: Callable[..., tuple[int, str]]
) -> None:
    later = ending(137, lambda text: swapped(text, "driver=$!", "driver=$!\nSECONDS=600"), SLURM_RESTART_COUNT="9")
    assert (later[0], slurm.queued()) == (3, True)


def test_a_node_without_the_folder_of_the_job_is_left_out(
    slurm: FakeSlurm, ending: Callable[..., tuple[int, str]]
) -> None:
    code, said = ending(0, lambda text: re.sub("^cd .* [|][|]", "cd /nowhere ||", text, flags=re.MULTILINE))
    assert (code, slurm.queued()) == (3, True), said
    assert "n1 lacks this folder: the job queues again, without n1\n" in said


def test_a_controller_that_does_not_answer_is_asked_again(
    slurm: FakeSlurm, ending: Callable[..., tuple[int, str]]
) -> None:
    (slurm.queue / "away").touch()
    code, said = ending(3, lambda text: swapped(text, "sleep 15", "sleep 0.1"))
    assert (code, slurm.queued()) == (3, True), said
    assert "Unable to contact slurm controller" in said
    (slurm.queue / "away").touch()
    code, said = ending(3, lambda text: swapped(text, "sleep 15", 'touch "$QUEUE/away"'))
    assert (code, slurm.queued()) == (3, False)
    assert "scontrol show failed for ten minutes: submit this script again" in said


@pytest.mark.gate
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
    axes = ("--set", 'objectives=["con_con"]', "--set", "seeds=[0,1]", *LASTING, "--set", "train.epochs=12")
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
