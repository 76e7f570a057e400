"""A trial's state is what its folder says."""

import json
import os
import socket
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from goalgrid.grid.store import folder_clock, processes
from goalgrid.grid.store.attempts import Attempt, Failure
from goalgrid.grid.store.home import Home, State, TrialFolder


@pytest.fixture
def folder(tmp_path: Path) -> TrialFolder:
    folder = Home(tmp_path).trial("some-trial")
    folder.attempts_folder.mkdir(parents=True)
    return folder


def attempt(folder: TrialFolder, number: int = 1, **different: Any) -> Attempt:
    """An attempt of this very process, but for what is different."""
    lease = {
        "machine": processes.machine(),
        "host": socket.gethostname(),
        "pid": os.getpid(),
        "started": processes.started(os.getpid()),
        "heartbeat": time.time(),
    }
    made = Attempt(folder.attempts_folder, number)
    made.lease.write_text(json.dumps(lease | different))
    return made


def test_states_follow_from_files(folder: TrialFolder) -> None:
    assert folder.state() is State.PLANNED
    folder.settings.write_text("{}")
    assert folder.state() is State.INTERRUPTED
    folder.error.write_text("Traceback ...\n\nnon-finite: the loss became nan at step 3\n")
    assert folder.state() is State.FAILED
    assert folder.reason() == "non-finite: the loss became nan at step 3"
    attempt(folder)
    assert folder.state() is State.RUNNING
    folder.done.write_text("")
    assert folder.state() is State.DONE


def test_the_class_of_a_failure_is_its_last_attempts(folder: TrialFolder) -> None:
    for number, outcome in enumerate(("killed", "out-of-memory"), start=1):
        attempt(folder, number).end.write_text(json.dumps({"outcome": outcome, "message": "why"}))
    folder.error.write_text("out-of-memory: why\n")
    assert folder.failure() is Failure.OUT_OF_MEMORY
    assert folder.state() is State.FAILED


def test_a_killed_process_makes_no_attempt(folder: TrialFolder) -> None:
    process = subprocess.Popen(["sleep", "60"])
    made = attempt(folder, pid=process.pid, started=processes.started(process.pid))
    assert made.live()
    process.kill()
    time.sleep(0.1)
    assert not made.live()  # it is a zombie yet
    process.wait()
    assert not made.live()
    assert made.failure() is Failure.KILLED


def test_another_process_with_the_same_number_makes_no_attempt(folder: TrialFolder) -> None:
    assert not attempt(folder, started=0.0).live()


def test_another_machine_is_judged_by_its_heartbeat_and_where_its_clock_is_off_by_when_it_wrote(
    folder: TrialFolder,
) -> None:
    for ahead in (-3600, 3600):
        made = attempt(folder, machine="elsewhere", heartbeat=time.time() + ahead)
        assert made.live()
        os.utime(made.lease, (0, time.time() - 3600))
        assert not made.live()
    made = attempt(folder, machine="elsewhere")
    os.utime(made.lease, (0, time.time() - 3600))
    assert made.live()


def test_the_age_of_a_lease_is_judged_by_the_clock_of_its_folder(
    folder: TrialFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    beating, dead = (attempt(folder, number, machine="elsewhere") for number in (1, 2))
    os.utime(dead.lease, (0, time.time() - 600))
    real = time.time
    for off in (600, -600):
        monkeypatch.setattr(time, "time", lambda ahead=off: real() + ahead)
        folder_clock._AHEAD.clear()
        assert beating.live()
    monkeypatch.setattr(time, "time", lambda: real() + 1200)
    folder_clock._AHEAD.clear()
    assert not dead.live()
    assert [path for path in beating.folder.iterdir() if path.name.startswith(".")] == []


def test_the_same_host_after_a_reboot_is_another_machine(folder: TrialFolder) -> None:
    host, *_, namespace = processes.machine().split()
    made = attempt(folder, machine=f"{host} another-boot {namespace}", heartbeat=0)
    os.utime(made.lease, (0, 0))
    assert not made.live()


def test_a_clock_that_is_set_ends_no_attempt_of_this_machine(folder: TrialFolder) -> None:
    assert attempt(folder, heartbeat=time.time() - 10**6).live()
    assert attempt(folder, heartbeat=time.time() + 10**6).live()


def test_an_attempt_that_was_ended_is_over_though_its_process_lives(folder: TrialFolder) -> None:
    made = attempt(folder)
    made.end.write_text(json.dumps({"outcome": "timeout", "message": "no progress"}))
    assert not made.live()
    assert made.failure() is Failure.TIMEOUT


def test_a_torn_lease_is_none(folder: TrialFolder) -> None:
    made = attempt(folder)
    made.lease.write_text('{"host": "els')
    assert not made.live()


@pytest.mark.parametrize("content", [b"", b"[1]", b"\xff\xfe", b'{"machine": "elsewhere", "pid": 1, "started": 2.0}'])
def test_a_damaged_lease_is_none(folder: TrialFolder, content: bytes) -> None:
    made = attempt(folder)
    made.lease.write_bytes(content)
    assert folder.state() is State.PLANNED
    assert made.content() == {}
    assert made.failure() is Failure.KILLED


@pytest.mark.parametrize("content", [b"", b"\xff", b'{"outcome": "no class"}', b'{"outcome": ["bug"], "step": "x"}'])
def test_an_attempt_with_a_damaged_end_was_killed(folder: TrialFolder, content: bytes) -> None:
    made = attempt(folder)
    made.end.write_bytes(content)
    assert not made.live()
    assert made.failure() is Failure.KILLED
    assert made.step() == 0


def test_only_numbers_of_attempts_count(folder: TrialFolder) -> None:
    for name in (f"{10**19}.json", "\N{SUPERSCRIPT TWO}.json", "7.json", "002.json", "002.end.json"):
        (folder.attempts_folder / name).write_text("{}")
    assert [made.number for made in folder.attempts()] == [2]
