"""A trial's state is what its folder says."""

import json
import os
import subprocess
import time
from pathlib import Path

import pytest

from grid.home import Home, State, TrialFolder, lease_content, lease_is_live


@pytest.fixture
def folder(tmp_path: Path) -> TrialFolder:
    folder = Home(tmp_path).trial("some-trial")
    folder.path.mkdir(parents=True)
    return folder


def test_states_follow_from_files(folder: TrialFolder) -> None:
    assert folder.state() is State.PLANNED
    folder.settings.write_text("{}")
    assert folder.state() is State.INTERRUPTED
    folder.error.write_text("Traceback ...\n\nthe loss became nan at step 3\n")
    assert folder.state() is State.FAILED
    assert folder.reason() == "the loss became nan at step 3"
    folder.lease.write_text(json.dumps(lease_content()))
    assert folder.state() is State.RUNNING
    folder.done.write_text("")
    assert folder.state() is State.DONE


def test_a_killed_process_holds_no_lease(folder: TrialFolder) -> None:
    process = subprocess.Popen(["sleep", "60"])
    lease = {**lease_content(), "pid": process.pid, "started": time.time()}
    folder.lease.write_text(json.dumps(lease))
    assert lease_is_live(folder.lease)
    process.kill()
    process.wait()
    assert not lease_is_live(folder.lease)


def test_another_process_with_the_same_number_holds_no_lease(folder: TrialFolder) -> None:
    folder.lease.write_text(json.dumps({**lease_content(), "pid": os.getpid(), "started": 0.0}))
    assert not lease_is_live(folder.lease)


def test_another_machine_is_judged_by_its_heartbeat(folder: TrialFolder) -> None:
    lease = {**lease_content(), "host": "elsewhere"}
    folder.lease.write_text(json.dumps(lease))
    assert lease_is_live(folder.lease)
    folder.lease.write_text(json.dumps({**lease, "heartbeat": time.time() - 3600}))
    assert not lease_is_live(folder.lease)


def test_a_torn_lease_is_none(folder: TrialFolder) -> None:
    folder.lease.write_text('{"host": "els')
    assert not lease_is_live(folder.lease)
