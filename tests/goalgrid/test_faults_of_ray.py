"""Ray itself dies under a launch on this machine: nothing outlives it, and the same command completes the grid."""

import os
import re
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from goalgrid.grid.errors import HostFault
from goalgrid.grid.store.home import Home
from goalgrid.runners.launch.ray_nodes import check_room
from goalgrid.runners.launch.ray_tune import ELSEWHERE
from tests.program import copied, put_into_result

from ..conftest import LASTING, Goalgrid
from .processes import pid_of, running, start, wait_until

GRID = ("run", "demo", "--set", 'objectives=["con_con"]', "--set", "seeds=[0,1]", "--mlflow-uri", "", *LASTING)
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


@pytest.mark.slow
def test_sigterm_to_all_processes_of_a_launch_leaves_checkpoints(tmp_path: Path, goalgrid: Goalgrid) -> None:
    """As Slurm does to a job that it requeues: a Ray that ended would take its workers with it."""
    process = launched(Home(tmp_path))
    before = family(process)
    for member in before:
        with suppress(psutil.NoSuchProcess):
            member.terminate()
    _, talk = process.communicate(timeout=60)
    assert process.returncode == 3, talk
    assert "Ray's head is gone" not in talk
    outcomes = [attempt.outcome() for folder in Home(tmp_path).trials() for attempt in folder.attempts()]
    assert "pre-empted" in outcomes
    assert set(outcomes) <= {"pre-empted", "done"}
    assert_nothing_is_left(before)
    assert_the_same_command_completes(tmp_path, goalgrid)


@pytest.mark.slow
def test_a_launch_on_whose_only_host_attempts_only_die_ends_so_that_its_job_goes_on_elsewhere(
    tmp_path: Path, goalgrid: Goalgrid, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(ELSEWHERE, "yes")
    home = Home(tmp_path)
    process = start(*LONGER, runs=home.path)

    def ended() -> bool:
        """Whether the launch ended. Kills processes that train, until three attempts have died."""
        attempts = [attempt for folder in home.trials() for attempt in folder.attempts()]
        dead = sum(attempt.outcome() in ("killed", "sick-node") for attempt in attempts)
        for folder in running(home) if dead < 3 else []:
            with suppress(ProcessLookupError):
                os.kill(pid_of(folder), signal.SIGKILL)
        return process.poll() is not None

    wait_until(ended)
    talk = process.communicate()[1]
    assert process.returncode == 5, talk
    assert "Ray failed: attempts only die on this host" in talk
    outcomes = [attempt.outcome() for folder in home.trials() for attempt in folder.attempts()]
    assert outcomes.count("sick-node") >= 3, "These do not count as attempts of their trials"
    assert set(outcomes) <= {"sick-node", "pre-empted"}
    assert not running(home)
    monkeypatch.delenv(ELSEWHERE)
    again = goalgrid(*LONGER, runs=home.path)
    assert again.returncode == 0, again.stderr


@pytest.mark.slow
def test_code_that_changes_in_mid_run_trains_nothing_and_ends_the_launch_with_the_reason(tmp_path: Path) -> None:
    """A process that begins after a `git pull` would go on with a trial by other code: it hands the job back."""
    code, home = tmp_path / "code", Home(tmp_path / "runs")
    copied(code)
    environment = {**os.environ, "PYTHONPATH": str(code), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "goalgrid", *LONGER, "--set", "train.epochs=12", "--jobs", "1"]
    process = subprocess.Popen(
        [*command, "--runs", str(home.path)], stderr=subprocess.PIPE, text=True, env=environment, cwd=code
    )
    wait_until(lambda: bool(running(home)), process)
    schedules = code / "runners" / "training" / "optimizers.py"
    put_into_result("learning_rate", "2", schedules)
    (folder,) = running(home)
    os.kill(pid_of(folder), signal.SIGKILL)
    _, talk = process.communicate(timeout=120)
    assert process.returncode == 3, talk
    assert talk.count("gets no jobs: its code differs from that of this launch") == 1
    assert "no node is left for the jobs" in talk
    assert [attempt.outcome() for attempt in folder.attempts()] == ["killed"]


@pytest.mark.gate
def test_a_folder_for_temporary_files_that_is_too_long_for_sockets_is_named(
    tmp_path: Path, goalgrid: Goalgrid, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Linux takes 107 bytes of a socket's path, and a session of Ray needs most of them: to try again is no help."""
    own = tmp_path / ("a" * 90)
    own.mkdir()
    monkeypatch.setenv("TMPDIR", str(own))
    refused = goalgrid(*GRID, runs=tmp_path / "runs")
    assert refused.returncode == 2
    assert f"its sockets are below TMPDIR, {own}, whose path has {len(str(own))} bytes; at most " in refused.stderr
    assert "Use a local folder with a shorter path: TMPDIR=/tmp before the command" in refused.stderr


def test_a_full_disk_of_rays_folder_is_named_before_ray_tries(tiny_disk: Path) -> None:
    with pytest.raises(HostFault, match=re.escape(f"it needs 32 MB in {tiny_disk / 'ray'} (No space left on device)")):
        check_room(str(tiny_disk / "ray"))
    subprocess.run(["mount", "-o", "remount,size=40m", str(tiny_disk)], check=True)
    check_room(str(tiny_disk / "ray"))


@pytest.mark.gate
def test_a_host_on_which_ray_cannot_start_has_an_exit_code_of_its_own(
    tmp_path: Path, tiny_disk: Path, goalgrid: Goalgrid, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The script for Slurm queues its job again without this node."""
    monkeypatch.setenv("RAY_TMPDIR", str(tiny_disk))
    refused = goalgrid(*GRID, runs=tmp_path / "runs")
    assert refused.returncode == 5, refused.stderr
    assert f"error: Ray cannot start on this machine: it needs 32 MB in {tiny_disk} " in refused.stderr
