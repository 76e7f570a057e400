"""On several hosts with a shared folder: what a cut cable costs, and what a host that joins late may do."""

import json
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from goalgrid.grid.store.home import Home
from tests.program import put_into_result

from ...conftest import LASTING, ROOT, Goalgrid
from ...goalgrid.processes import trained_after_done, wait_until
from .hosts import PORT, RAY, Host, Hosts, connected, permitted
from .test_cluster import numbers

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not permitted(), reason="needs the right to make network namespaces (root), ip and nsenter"),
]

LONG = ("--set", 'objectives=["sig-ms_cir"]', "--set", "seeds=[0,1,2]", *LASTING, "--set", "train.epochs=16")
RUN = (sys.executable, "-m", "goalgrid", "run", "demo", *LONG, "--mlflow-uri", "")

KILLS_ALL = """
import json, os, sys, time
from pathlib import Path
killed = set()
while True:
    for lease in Path(sys.argv[1]).glob("trials/*/attempts/[0-9][0-9][0-9].json"):
        content = json.loads(lease.read_text())
        if content["machine"].startswith(sys.argv[2]) and lease not in killed:
            killed.add(lease)
            os.kill(content["pid"], 9)
    time.sleep(0.1)
"""


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory, goalgrid: Goalgrid) -> Home:
    home = Home(tmp_path_factory.mktemp("undisturbed"))
    finished = goalgrid("run", "demo", *LONG, "--here", runs=home.path)
    assert finished.returncode == 0, finished.stderr
    return home


@pytest.fixture
def hosts() -> Iterator[Hosts]:
    """A head that trains nothing, and two more hosts that are no nodes yet."""
    with connected(3) as network:
        network.join_ray(network.hosts[0], cpus=0)
        wait_until(lambda: "This command will now block" in network.hosts[0].said(), seconds=60)
        yield network


def joined(network: Hosts, host: Host, *, cpus: int, code: Path = ROOT) -> None:
    network.join_ray(host, cpus=cpus, code=code)
    wait_until(lambda: "This command will now block" in host.said(), seconds=60)


def begun_on(host: Host, runs: Path) -> Callable[[], Path | None]:
    """The folder of a trial that is trained there, and has a checkpoint."""

    def look() -> Path | None:
        for lease in runs.glob("trials/*/attempts/[0-9][0-9][0-9].json"):
            folder = lease.parent.parent
            if json.loads(lease.read_text())["machine"].startswith(host.name) and (folder / "last.ckpt").exists():
                return folder
        return None

    return look


def driven(hosts: Hosts, *, cpus: int = 1) -> "tuple[Path, subprocess.Popen[bytes], Path]":
    """The runs folder, a launch that the third host drives with so many CPUs, and a trial begun on the second host."""
    _, worker, driving = hosts.hosts
    joined(hosts, worker, cpus=1)
    joined(hosts, driving, cpus=cpus)
    runs = hosts.shared / "runs"
    run = driving.start(*RUN, "--runs", str(runs), "--address", hosts.ray)
    begun = begun_on(worker, runs)
    wait_until(lambda: begun() is not None, seconds=120)
    folder = begun()
    assert folder
    return runs, run, folder


def outcomes(runs: Path) -> dict[str, list[str | None]]:
    return {folder.trial_id: [attempt.outcome() for attempt in folder.attempts()] for folder in Home(runs).trials()}


def assert_equal(runs: Path, undisturbed: Home) -> None:
    assert len(Home(runs).trials()) == len(undisturbed.trials()) == 3
    for folder in undisturbed.trials():
        assert numbers(Home(runs).trial(folder.trial_id).record).equals(numbers(folder.record))


@pytest.mark.parametrize("whose", ["the driver's", "another"])
def test_a_cable_cut_for_20_seconds_kills_no_trial_and_changes_no_number(
    hosts: Hosts, whose: str, undisturbed: Home
) -> None:
    _, worker, driving = hosts.hosts
    runs, run, _ = driven(hosts)
    host = driving if whose == "the driver's" else worker
    host.cut()
    time.sleep(20)
    host.join()
    assert run.wait(300) == 0, driving.said()
    assert_equal(runs, undisturbed)
    assert not [ends for ends in outcomes(runs).values() if "killed" in ends], outcomes(runs)
    assert "memory" not in driving.said()


def test_a_driver_cut_off_for_55_seconds_ends_and_the_same_command_goes_on_from_another_host(
    hosts: Hosts, undisturbed: Home
) -> None:
    _, worker, driving = hosts.hosts
    runs, run, _ = driven(hosts, cpus=0)
    driving.cut()
    time.sleep(55)
    driving.join()
    assert run.wait(60) == 3, driving.said()
    assert "Ray's head is gone: trials write a checkpoint" in driving.said()
    again = worker.start(*RUN, "--runs", str(runs), "--address", hosts.ray)
    assert again.wait(300) == 0, worker.said()
    assert_equal(runs, undisturbed)
    assert not [ends for ends in outcomes(runs).values() if "killed" in ends], outcomes(runs)


def test_a_process_killed_on_another_host_is_called_killed_once_that_host_says_so(
    hosts: Hosts, undisturbed: Home
) -> None:
    _, worker, driving = hosts.hosts
    runs, run, folder = driven(hosts)
    (lease,) = (json.loads(path.read_text()) for path in folder.glob("attempts/001.json"))
    assert worker.start("kill", "-9", str(lease["pid"])).wait(10) == 0
    assert run.wait(300) == 0, driving.said()
    assert_equal(runs, undisturbed)
    assert outcomes(runs)[folder.name][0] == "killed", outcomes(runs)


def test_a_host_whose_cable_stays_cut_ends_the_trial_that_it_has(hosts: Hosts, undisturbed: Home) -> None:
    """It still sees the shared folder, so its lease lives on; the other host trains the rest."""
    _, worker, driving = hosts.hosts
    runs, run, _ = driven(hosts)
    worker.cut()
    assert run.wait(400) == 0, driving.said()
    assert_equal(runs, undisturbed)
    assert trained_after_done(Home(runs)) == []
    assert not [ends for ends in outcomes(runs).values() if "killed" in ends], outcomes(runs)


def test_a_head_of_another_cluster_with_the_same_port_is_told_that_it_is_no_node(hosts: Hosts) -> None:
    """Ray would search for a minute, and then name the token."""
    other = hosts.hosts[1]
    own = f"--node-ip-address={other.address}"
    other.start(*RAY, "--head", f"--port={PORT}", "--include-dashboard=false", own, "--num-cpus=1")
    wait_until(lambda: "This command will now block" in other.said(), seconds=60)
    run = other.start(*RUN, "--runs", str(hosts.shared / "runs"), "--address", hosts.ray)
    assert run.wait() == 2
    assert f"this host is not a node of the Ray cluster at {hosts.ray}" in other.said()


def test_a_host_that_joins_late_with_other_code_trains_nothing(hosts: Hosts) -> None:
    _, late, driving = hosts.hosts
    joined(hosts, driving, cpus=1)
    runs, other = hosts.shared / "runs", hosts.shared / "code"
    shutil.copytree(ROOT, other, ignore=shutil.ignore_patterns(".*", "runs", "tests", "docs"))
    schedules = other / "runners" / "training" / "optimizers.py"
    put_into_result("learning_rate", "2", schedules)
    run = driving.start(*RUN, "--set", f"seeds={list(range(8))}", "--runs", str(runs), "--address", hosts.ray)
    wait_until(lambda: begun_on(driving, runs)() is not None, seconds=120)
    joined(hosts, late, cpus=2, code=other)
    assert run.wait(300) == 0, driving.said()
    assert set(map(tuple, outcomes(runs).values())) == {("done",)}
    leases = [json.loads(lease.read_text()) for lease in runs.glob("trials/*/attempts/[0-9][0-9][0-9].json")]
    assert {lease["machine"].split()[0] for lease in leases} == {driving.name}
    assert f"{late.name}" in driving.said()


def test_a_host_that_kills_all_it_trains_is_set_aside_and_costs_no_trial_a_try(hosts: Hosts) -> None:
    _, sick, driving = hosts.hosts
    joined(hosts, driving, cpus=1)
    joined(hosts, sick, cpus=1)
    runs = hosts.shared / "runs"
    sick.start(sys.executable, "-c", KILLS_ALL, str(runs), sick.name)
    many = ("--set", f"seeds={list(range(7))}", "--set", "train.epochs=32")
    run = driving.start(*RUN, *many, "--runs", str(runs), "--address", hosts.ray)
    assert run.wait(500) == 0, driving.said()
    attempts = [attempt for folder in Home(runs).trials() for attempt in folder.attempts()]
    died = [attempt for attempt in attempts if attempt.content()["machine"].startswith(sick.name)]
    assert [attempt.outcome() for attempt in died] == ["sick-node"] * 3, outcomes(runs)
    assert sorted(attempt.outcome() for attempt in attempts if attempt not in died) == ["done"] * 7, outcomes(runs)
    assert driving.said().count(f"node {sick.name} is paused for 5 minutes") == 1
