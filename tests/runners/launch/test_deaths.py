"""The death of a job's process, judged by what the driver knows of it: no Ray is needed to see every judgement."""

import os
import socket
from pathlib import Path

import pytest

from runners.launch.deaths import IN_VAIN, Deaths
from runners.trial import holding
from runners.trial.events import Event
from runners.trial.holding import Origin
from runners.trial.stopping import Stop

from .test_worker import job

HOST = socket.gethostname()


@pytest.mark.parametrize(
    ("error", "alive", "gone", "message"),
    [
        ("ray.exceptions.OutOfMemoryError", True, True, f"Ray ended its process on {HOST}: the node ran out of memory"),
        ("", False, True, f"node-lost: node {HOST} is gone, after step 0"),
        ("", True, False, f"node-lost: Ray lost its process on {HOST}, after step 0"),
        ("", True, True, f"killed: its process {os.getpid()} on {HOST} died"),
    ],
    ids=["memory", "node gone", "process lost", "killed"],  # a process's number differs between those that collect
)
def test_the_attempt_ends_with_the_cause_of_the_death(
    error: str, alive: bool, gone: bool, message: str, tmp_path: Path
) -> None:
    one, events = job(tmp_path), list[Event]()
    deaths = Deaths(events.append, alive=lambda node: alive, gone=lambda lease: gone)
    with holding.held(one.home.trial(one.id), Origin("now"), Stop()):
        assert deaths.bury(one, error) == ""
        assert deaths.bury(one, error) == "", "an attempt is buried once"
    assert [event.kind for event in events] == ["retry"]
    assert events[0].message.endswith(message)


def test_a_launch_ends_when_process_after_process_dies_before_a_trial_begins(tmp_path: Path) -> None:
    one = job(tmp_path)
    deaths = Deaths(lambda event: None, alive=lambda node: True, gone=lambda lease: True)
    died = [deaths.bury(one, "Traceback\nImportError: no torch") for _ in range(IN_VAIN)]
    deaths.report(Event(one.id, "started"))
    died += [deaths.bury(one, "Traceback\nImportError: no torch") for _ in range(IN_VAIN)]
    assert set(died) == {""}
    assert deaths.bury(one, "Traceback\nImportError: no torch") == (
        f"its processes died {IN_VAIN + 1} times before they began a trial: ImportError: no torch"
    )
