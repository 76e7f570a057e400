"""The death of a job's process, judged by what the driver knows of it: no Ray is needed to see every judgement."""

import os
import socket
from pathlib import Path

import pytest

from goalgrid.grid.store.attempts import Failure
from goalgrid.runners.launch.jobs import Job
from goalgrid.runners.launch.nodes import IN_VAIN, Deaths, Nodes
from goalgrid.runners.trial import lease, retries
from goalgrid.runners.trial.events import Event
from goalgrid.runners.trial.stopping import Stop

from .test_worker import job

HOST = socket.gethostname()


def judge(of: Job, events: list[Event], *, alive: bool = True, gone: bool = True, spare: bool = True) -> Deaths:
    """Of a cluster whose nodes are alive and whose processes are gone, or not."""
    known = {"alive": lambda node: alive, "gone": lambda lease: gone, "spare": lambda node: spare}
    return Deaths(of.home, events.append, nodes=Nodes(), **known)


def dies(deaths: Deaths, one: Job, node: str, failure: Failure | None = None) -> None:
    """Have the process die that makes an attempt at a trial there, which may have said why."""
    folder = one.home.trial(one.id)
    with lease.new_attempt(folder, Stop(), "now", node) as hold:
        if failure:
            hold.end(failure, "CUDA error: an illegal memory access")
            retries.given_up(folder, "now")
    deaths.process_died(one, "")


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
    deaths = judge(one, events, alive=alive, gone=gone)
    with lease.new_attempt(one.home.trial(one.id), Stop(), "now"):
        assert deaths.process_died(one, error) == ""
        assert deaths.process_died(one, error) == "", "an attempt ends once"
    assert [event.kind for event in events] == ["retry"]
    assert events[0].message.endswith(message)


def test_an_attempt_of_another_launch_is_none_that_this_death_cut_off(tmp_path: Path) -> None:
    one, events = job(tmp_path), list[Event]()
    with lease.new_attempt(one.home.trial(one.id), Stop(), "before") as hold:
        assert judge(one, events).process_died(one, "") == ""
        assert hold.attempt.outcome() is None
    assert events == []


def test_a_launch_ends_when_process_after_process_dies_before_a_trial_begins(tmp_path: Path) -> None:
    one = job(tmp_path)
    deaths = judge(one, [])
    died = [deaths.process_died(one, "Traceback\nImportError: no torch") for _ in range(IN_VAIN)]
    deaths.report(Event(one.id, "started"))
    died += [deaths.process_died(one, "Traceback\nImportError: no torch") for _ in range(IN_VAIN)]
    assert set(died) == {""}
    assert deaths.process_died(one, "Traceback\nImportError: no torch") == (
        f"its processes died {IN_VAIN + 1} times before they began a trial: ImportError: no torch "
        "(see dmesg: the system may have killed them because memory ran out)"
    )


@pytest.mark.parametrize("failure", [None, Failure.DEVICE], ids=["killed", "device-error"])
def test_a_node_that_lets_all_trials_die_is_named_once_and_its_deaths_are_no_tries(
    failure: Failure | None, tmp_path: Path
) -> None:
    jobs, events = [job(tmp_path, f"seeds=[{seed}]") for seed in range(4)], list[Event]()
    deaths = judge(jobs[0], events)
    for one in (jobs[0], jobs[0], jobs[1]):
        dies(deaths, one, "sick", failure)
    folders = [one.home.trial(one.id) for one in jobs]
    assert [a.failure() for folder in folders for a in folder.attempts()] == [Failure.SICK_NODE] * 3
    assert not folders[0].error.exists()
    for one in (jobs[2], jobs[3]):  # from other reservations, or when the node is tried again
        dies(deaths, one, "sick", failure)
    assert folders[3].attempts()[0].failure() is Failure.SICK_NODE
    warnings = [event.message for event in events if event.kind == "warning"]
    assert len(warnings) == 1
    assert warnings[0].startswith(f"node {HOST} is paused for 5 minutes: 3 attempts in a row died there")


def test_a_trial_that_is_done_says_that_its_node_is_sound(tmp_path: Path) -> None:
    jobs, events = [job(tmp_path, f"seeds=[{seed}]") for seed in range(4)], list[Event]()
    deaths = judge(jobs[0], events)
    for one in jobs[:2]:
        dies(deaths, one, "slow")
    with lease.new_attempt(jobs[2].home.trial(jobs[2].id), Stop(), "now", "slow") as hold:
        hold.end("done")
    deaths.report(Event(jobs[2].id, "done"))
    dies(deaths, jobs[3], "slow")
    assert {a.failure() for one in (*jobs[:2], jobs[3]) for a in one.home.trial(one.id).attempts()} == {Failure.KILLED}
