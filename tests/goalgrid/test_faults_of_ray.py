"""Ray itself dies under a launch on this machine: nothing outlives it, and the same command completes the grid."""

import os
import signal
import subprocess
from pathlib import Path

import psutil
import pytest

from grid.store.home import Home

from ..conftest import SMALL, Goalgrid
from .processes import running, start, wait_until

GRID = ("run", "demo", "--set", 'objectives=["con_con"]', "--set", "seeds=[0,1]", "--mlflow-uri", "", *SMALL)
LONGER = (*GRID, "--set", "train.epochs=6")


def launched(home: Home) -> subprocess.Popen[str]:
    """A launch whose first trials have a checkpoint."""
    process = start(*LONGER, runs=home.path)
    wait_until(lambda: bool(running(home)), process)
    return process


def family(process: subprocess.Popen[str]) -> list[psutil.Process]:
    """A process with all its children: Ray's services, their agents, the workers."""
    return [psutil.Process(process.pid), *psutil.Process(process.pid).children(recursive=True)]


def assert_nothing_is_left(processes: list[psutil.Process]) -> None:
    _, alive = psutil.wait_procs(processes, timeout=30)
    left = [process.cmdline() for process in alive if process.status() != psutil.STATUS_ZOMBIE]
    assert left == []


def assert_the_same_command_completes(runs: Path, goalgrid: Goalgrid) -> None:
    """And no trial is trained more often than it was cut off."""
    again = goalgrid(*LONGER, runs=runs)
    assert again.returncode == 0, again.stderr
    made = [Home(runs).trial(folder.name).attempts() for folder in (runs / "trials").iterdir()]
    assert len(made) == 2
    assert all([attempt.outcome() for attempt in one][-1] == "done" for one in made)
    assert all(len(one) <= 2 for one in made)


@pytest.mark.slow
def test_without_its_head_a_launch_ends_soon_and_trials_keep_their_work(tmp_path: Path, goalgrid: Goalgrid) -> None:
    process = launched(Home(tmp_path))
    before = family(process)
    (head,) = (member for member in before if member.name() == "gcs_server")
    head.kill()
    _, talk = process.communicate(timeout=40)
    assert process.returncode == 3, talk
    assert "Ray's head is gone" in talk
    assert "Traceback" not in talk
    attempts = [path.read_text() for path in tmp_path.glob("trials/*/attempts/001.end.json")]
    assert any("pre-empted" in end for end in attempts)
    assert_nothing_is_left(before)
    assert_the_same_command_completes(tmp_path, goalgrid)


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM], ids=["kill -9", "SIGTERM"])
def test_nothing_outlives_the_process_group_of_a_launch(
    number: signal.Signals, tmp_path: Path, goalgrid: Goalgrid
) -> None:
    process = launched(Home(tmp_path))
    before = family(process)
    os.killpg(process.pid, number)
    _, talk = process.communicate(timeout=60)
    assert process.returncode == (-9 if number is signal.SIGKILL else 3), talk
    assert_nothing_is_left(before)
    assert_the_same_command_completes(tmp_path, goalgrid)
