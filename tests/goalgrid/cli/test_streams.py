"""What happens to those who read a command's output happens to them alone."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from goalgrid.grid.store.home import Home, State
from tests.fork_server import client

from ...conftest import ROOT, SMALL
from ..processes import pid_of, running, wait_until

ONE = (*SMALL, "--set", 'objectives=["con_con"]', "--set", "seeds=[0]")


def shell(words: str, runs: Path) -> subprocess.CompletedProcess[str]:
    """A line of bash in which `goalgrid` is this program; its exit code is that of the first command."""
    line = f'goalgrid() {{ "{sys.executable}" -m goalgrid "$@"; }}; {words}; exit ${{PIPESTATUS[0]}}'
    environment = {**os.environ, "GOALGRID_RUNS": str(runs), "OMP_NUM_THREADS": "1"}
    return subprocess.run(["bash", "-c", line], capture_output=True, text=True, cwd=ROOT, env=environment, timeout=240)


@pytest.mark.parametrize(
    "streams",
    [
        pytest.param("2>&1 | head -c 10", marks=pytest.mark.gate),
        *(pytest.param(each, marks=pytest.mark.slow) for each in ("> /dev/full 2>&1", ">&- 2>&-")),
    ],
)
def test_a_launch_trains_to_its_end_whatever_becomes_of_its_output(streams: str, tmp_path: Path) -> None:
    grid = " ".join(f"'{word}'" for word in ONE)
    ended = shell(f"goalgrid run demo {grid} --here --mlflow-uri '' {streams}", tmp_path)
    assert ended.returncode == 0, ended.stderr
    assert [folder.state() for folder in Home(tmp_path).trials()] == [State.DONE]


def test_a_command_whose_product_is_lost_says_so(tmp_path: Path) -> None:
    lost = shell("goalgrid objectives > /dev/full", tmp_path)
    assert lost.returncode == 2
    assert lost.stderr == "error: cannot write this command's output: No space left on device.\n"
    assert shell("goalgrid objectives | head -n 1", tmp_path).returncode == 0
    assert shell("goalgrid status demo | true", tmp_path).returncode == 3, "the exit code says what it would have said"


@pytest.mark.parametrize(
    "here",
    [pytest.param(("--here",), marks=pytest.mark.gate), pytest.param((), marks=pytest.mark.slow)],
    ids=["here", "ray"],
)
def test_trials_are_asked_for_checkpoints_though_nobody_reads_the_log(here: tuple[str, ...], tmp_path: Path) -> None:
    """Ctrl-C in `goalgrid run ... 2>&1 | tee log` kills tee, too."""
    words = ("run", "demo", *ONE, "--set", "train.epochs=500", "--mlflow-uri", "", *here)
    environment = {**os.environ, "GOALGRID_RUNS": str(tmp_path)}
    process = client.Popen(
        [sys.executable, "-m", "goalgrid", *words],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=environment, cwd=ROOT, start_new_session=True,
    )  # fmt: skip
    home = Home(tmp_path)
    wait_until(lambda: bool(running(home)))
    (folder,) = running(home)
    assert process.stdout
    process.stdout.close()
    os.kill(process.pid, signal.SIGINT)
    assert process.wait(60) == 3
    assert folder.state() is State.INTERRUPTED
    (attempt,) = folder.attempts()
    assert attempt.outcome() == "pre-empted"
    assert folder.last_checkpoint.exists()
    assert pid_of(folder)
