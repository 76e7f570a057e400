"""Jobs as trials of Ray Tune: named by our ids, side by side where their resources differ, on processes used again."""

import json
import threading
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from ray import tune

from goalgrid.grid.errors import UserError
from goalgrid.grid.expansion import expand, trials_of
from goalgrid.grid.gridfile import load
from goalgrid.grid.store.home import Home
from goalgrid.results.records.record import differences
from goalgrid.runners.launch import shared_folder
from goalgrid.runners.launch.halving import Judge
from goalgrid.runners.launch.jobs import Job, Launched, Request, jobs_for
from goalgrid.runners.launch.nodes import IN_VAIN
from goalgrid.runners.launch.ray_head import check_member
from goalgrid.runners.launch.ray_tune import RayTune, _Observer, _Process
from goalgrid.runners.trial.events import Event
from goalgrid.runners.trial.stopping import Stop

from ...conftest import SMALL, Goalgrid
from .test_halving import rules, searched, verdicts
from .test_halving import run as run_here


class Seen(tune.Callback):
    """A user's own callback of Ray Tune."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self.together: set[frozenset[str]] = set()
        self.listed: set[str] = set()
        self.epochs: list[dict[str, object]] = []

    def on_trial_result(self, iteration: int, trials: list[object], trial: object, result: Any, **info: object) -> None:
        self.epochs += result["epochs"]

    def on_trial_complete(self, iteration: int, trials: list[object], trial: object, **info: object) -> None:
        self.names.append(str(trial))

    def on_step_end(self, iteration: int, trials: list[object], **info: object) -> None:
        running = [trial.config["job"] for trial in trials if trial.status == "RUNNING"]  # type: ignore[attr-defined]
        self.together.add(frozenset(running))
        self.listed |= {json.loads(trial.get_json_state()[0])["config"]["job"] for trial in trials}  # type: ignore[attr-defined]


SCARCE = Request(1, 0.0, (("scarce", 1.0),))
"""Jobs that ask for this run one after the other."""


def jobs(home: Home) -> list[Job]:
    """Four jobs: two ask for a CPU, two for a CPU and a resource of which this machine has one."""
    grid = load(
        "demo", [*(word for word in SMALL if word != "--set"), 'objectives=["con_con","infonce"]', "seeds=[0,1]"]
    )
    launched = Launched("now", shared_folder.mark(home))
    made = jobs_for(grid, trials_of(expand(grid)), home, gpus=0, launched=launched)
    return [replace(job, request=SCARCE if number % 2 else Request(1, 0.0, ())) for number, job in enumerate(made)]


@dataclass(frozen=True)
class Ran:
    """Jobs of a grid and of a search that ran at once, what a user's callback saw, and what trials reported."""

    made: list[Job]
    search: list[Job]
    seen: Seen
    events: list[Event]
    results: tune.ResultGrid


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Ran:
    """The jobs of the search run one after the other, so that they end their epochs as without Ray.

    Ray takes the machine for one of two CPUs, which two jobs at a time need, also where there is only one.
    """
    home, seen, events = Home(tmp_path_factory.mktemp("runs")), Seen(), list[Event]()
    made = jobs(home)
    search = [replace(job, request=SCARCE) for job in searched(home.path)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_OVERRIDE_RESOURCES", json.dumps({"CPU": 2, "scarce": 1}))
        with RayTune(Stop(), address=None, grace=1.0, warn=print, halvings=rules(search)) as driver:
            driver.callbacks = [seen]
            driver.run([*made, *search], events.append, limit=None)
            assert driver.results is not None
    return Ran(made, search, seen, events, driver.results)


def test_ray_lists_a_trial_for_each_job_by_our_id(ran: Ran) -> None:
    made = {job.id for job in ran.made}
    assert sorted(ran.seen.names) == sorted([*made, *rules(ran.search)]) == sorted(ran.seen.listed)
    assert {event.trial_id for event in ran.events if event.kind == "done"} >= made
    assert all(job.home.trial(job.id).done.exists() for job in ran.made)


def test_jobs_that_ask_for_different_resources_run_side_by_side(ran: Ran) -> None:
    kinds = {job.id: job.request for job in [*ran.made, *ran.search]}
    assert any(len({kinds[name] for name in names}) == 2 for names in ran.seen.together)


def test_a_process_is_used_again_for_the_next_job_of_the_same_resources(ran: Ran) -> None:
    by_request = {}
    for job in [*ran.made, *ran.search]:
        (attempt,) = job.home.trial(job.id).attempts()
        by_request.setdefault(job.request, set()).add(attempt.content()["pid"])
    assert [len(pids) for pids in by_request.values()] == [1, 1]


def test_a_callback_and_the_result_grid_of_tune_hold_the_metrics_of_the_history(ran: Ran) -> None:
    seen, last = ran.seen, {result.metrics["trial"]: result.metrics for result in ran.results if result.metrics}
    for job in ran.made:
        rows = [row | {"trial": job.id} for row in job.home.trial(job.id).rows()]
        beside = {"step": 0, "seconds": 0}
        assert [row | beside for row in seen.epochs if row["trial"] == job.id] == [row | beside for row in rows]
        assert last[job.id].items() >= {name: rows[-1][name] for name in ("epoch", "loss", "val_rsum")}.items()
        assert not any(name.startswith("test_") for name in last[job.id])


def test_tune_s_asha_stops_the_trials_that_the_literal_rule_stops_without_ray(ran: Ran, tmp_path: Path) -> None:
    search, order = ran.search, list(dict.fromkeys(row["trial"] for row in ran.seen.epochs))  # Tune begins them in any
    here = sorted(searched(tmp_path), key=lambda job: order.index(job.id))
    run_here(here)
    assert verdicts(search) == verdicts(here)
    assert 0 < sum(verdict != "done" for verdict in verdicts(search).values()) < len(search)
    last = {result.metrics["trial"]: result.metrics["epoch"] for result in ran.results if result.metrics}
    for job in search:
        epochs = [row["epoch"] for row in job.home.trial(job.id).rows()]
        assert [row["epoch"] for row in ran.seen.epochs if row["trial"] == job.id] == epochs
        assert last[job.id] == epochs[-1]


def test_a_process_begins_no_trial_before_tune_takes_it_for_started(tmp_path: Path) -> None:
    """Until then Tune may end it, and give the job to a process that has become free."""
    process = _Process({"content": jobs(Home(tmp_path))[0].to_json(), "seconds": 0.25})
    assert "job" not in {thread.name for thread in threading.enumerate()}
    assert not (tmp_path / "trials").exists()
    process.stop()


def test_a_launch_whose_processes_all_die_before_they_begin_a_trial_ends(tmp_path: Path) -> None:
    (made, *_), error = jobs(Home(tmp_path)), tmp_path / "error.txt"
    error.write_text("Traceback\nImportError: no torch\n")
    observer = _Observer([made], print, Judge({}, made.home, ()), Stop(), grace=1.0)
    trial = SimpleNamespace(config={"job": made.id}, error_file=str(error))
    for _ in range(IN_VAIN):
        observer.on_trial_recover(0, [], trial)
        assert not observer.stop_all()
    observer.on_trial_error(0, [], trial)
    assert observer.stop_all()
    assert "before they began a trial: ImportError: no torch" in observer.hopeless


def test_a_node_of_another_cluster_is_no_node_of_this_cluster() -> None:
    """Both heads may have the same port."""
    check_member("10.77.0.1:6379", ["10.77.0.1", "127.0.0.1"])
    with pytest.raises(UserError, match=r"this host is not a node of the Ray cluster at 10\.77\.0\.1:6379"):
        check_member("10.77.0.1:6379", ["10.77.0.1"])


def test_in_process_and_through_ray_give_the_same_numbers(ran: Ran, trained: Home) -> None:
    alike = load("demo", [*(word for word in SMALL if word != "--set"), 'objectives=["con_con"]', "seeds=[0,1]"])
    assert differences(expand(alike), trained, ran.made[0].home) == []


@pytest.mark.gate
def test_a_mode_that_wants_a_token_without_a_token_is_an_error(
    tmp_path: Path, goalgrid: Goalgrid, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ray's compiled part would abort the process."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("RAY_AUTH_MODE", "token")
    finished = goalgrid("run", "demo", *SMALL, "--address", "127.0.0.1:1", "--mlflow-uri", "", runs=tmp_path / "runs")
    assert finished.returncode == 2
    assert "RAY_AUTH_MODE=token, but this host has no token of the Ray cluster at '127.0.0.1:1'." in finished.stderr


STICKY = """
import os
from pathlib import Path

import goalgrid
import torch

HERE = Path(__file__).parent


@goalgrid.objective("broken")
def broken(t):
    raise torch.AcceleratorError("CUDA error: device-side assert triggered")


@goalgrid.objective("mended")
def mended(t):
    first = Path("{folder}") / "first"
    if not first.exists():
        first.write_text(str(os.getpid()))
    if first.read_text() == str(os.getpid()):  # as torch does, whatever this process asks of its GPU from now on
        raise torch.AcceleratorError("CUDA error: an illegal memory access was encountered")
    return t.s_neg - t.s_pos
"""


@pytest.mark.slow
def test_a_gpu_that_fails_for_good_costs_its_process_and_not_the_launch(tmp_path: Path, goalgrid: Goalgrid) -> None:
    """Two tries, each in a process of its own; every other trial is done, also on the process that comes after."""
    own = tmp_path / "mine.py"
    own.write_text(STICKY.replace("{folder}", str(tmp_path)))
    axes = ("--set", 'objectives=["broken","mended","con_con"]', "--set", "seeds=[0]", "--set", f'uses=["{own}"]')
    ran = goalgrid("run", "demo", "--jobs", "1", "--mlflow-uri", "", *SMALL, *axes, runs=tmp_path / "runs")
    assert ran.returncode == 4, ran.stderr
    ends = {folder.trial_id.split("_")[2]: folder for folder in Home(tmp_path / "runs").trials()}
    outcomes = {name: [attempt.outcome() for attempt in folder.attempts()] for name, folder in ends.items()}
    assert outcomes.pop("con") == ["done"]
    assert outcomes == {"broken": ["device-error"] * 2, "mended": ["device-error", "done"]}
    assert "device-side assert" in ends["broken"].reason()
    pids = [attempt.content()["pid"] for name in ("broken", "mended") for attempt in ends[name].attempts()[:-1]]
    pids += [ends["broken"].attempts()[-1].content()["pid"]]
    assert len(set(pids)) == 3, "a process that failed was used again"
