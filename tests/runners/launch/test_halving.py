"""The rule that stops search trials: equal to Tune's, the same after a kill, and what it leaves on the disk."""

import json
import signal
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from ray.tune.schedulers import ASHAScheduler

from goalgrid.grid.expansion import expand, trials_of
from goalgrid.grid.gridfile import load
from goalgrid.grid.select import Halving
from goalgrid.grid.store.files import write_json, write_json_lines
from goalgrid.grid.store.home import Home, State
from goalgrid.runners.launch import shared_folder, worker
from goalgrid.runners.launch.driver import Driver
from goalgrid.runners.launch.halving import Judge
from goalgrid.runners.launch.jobs import Job, Launched, jobs_for
from goalgrid.runners.trial.events import Event
from goalgrid.runners.trial.stopping import Stop
from tests.fork_server import client

from ...conftest import ROOT, SMALL
from .test_worker import CHAINED
from .test_worker import job as job_of

HOPELESS = {"epoch": 1, "by": "val_rsum", "metric": 1.0, "bound": 2.0}
RATES = (3e-3, 1e-3, 3e-4, 1e-5, 1e-6, 1e-7)
"""Of six trials, of which the first three learn within an epoch."""


def searched(home: Path, epochs: int = 2, launch: str = "now") -> list[Job]:
    """Six jobs of one cell, which are judged after epochs 1, 3, ..."""
    small = [word for word in SMALL if word != "--set"]
    grid = load("demo", [*small, f"train.epochs={epochs}", f'sweep={{"train.lr"={list(RATES)}}}', "seeds=[0]",
                         'objectives=["infonce"]', "train.batch_size=20"])  # fmt: skip
    launched = Launched(launch, shared_folder.mark(Home(home)))
    trials = sorted(trials_of(expand(grid)), key=lambda trial: -trial.settings.train.lr)
    jobs = [job for trial in trials for job in jobs_for(grid, [trial], Home(home), gpus=0, launched=launched)]
    return [replace(job, halvings={job.id: Halving("cell", "val_rsum", grace=1)}) for job in jobs]


def rules(jobs: Sequence[Job]) -> dict[str, Halving]:
    return {trial_id: halving for job in jobs for trial_id, halving in job.halvings.items()}


def run(jobs: Sequence[Job]) -> list[Event]:
    """The events, without those of steps."""
    events = list[Event]()
    Driver(Stop(), rules(jobs)).run(jobs, events.append, limit=None)
    return [event for event in events if event.kind != "step"]


def verdicts(jobs: Sequence[Job]) -> dict[str, Any]:
    """By trial id: what its folder says; "done" of a trial that was not stopped."""
    folders = [job.home.trial(job.id) for job in jobs]
    return {f.trial_id: json.loads(f.stopped.read_text()) if f.stopped.exists() else f.state().value for f in folders}


KILLED = """
import os, signal, sys
from pathlib import Path
from goalgrid.runners.launch.driver import Driver
from goalgrid.runners.trial.stopping import Stop
from tests.runners.launch.test_halving import rules, searched
def report(event):
    global before
    before -= event.kind in ("started", "epoch", "stopped")
    if before == 0:
        os.kill(os.getpid(), signal.SIGKILL)
jobs, before = searched(Path(sys.argv[1]), epochs=4, launch=str(os.getpid())), int(sys.argv[2])
Driver(Stop(), rules(jobs)).run(jobs, report, limit=None)
"""

Epochs = list[tuple[int, float]]
"""The trial that ends its next epoch, and its metric then."""
METRICS = st.one_of(st.floats(0, 600, allow_nan=False), st.sampled_from([1.0, 2.0, 3.0]))
EPOCHS = st.lists(st.tuples(st.integers(0, 7), METRICS), max_size=60)
HALVINGS = st.builds(Halving, st.just("cell"), st.just("val_rsum"), st.integers(1, 4), st.integers(2, 4))


@settings(max_examples=200)
@given(EPOCHS, HALVINGS)
def test_the_literal_rule_decides_as_tune_s_asha_on_the_same_results(results: Epochs, halving: Halving) -> None:
    asha = ASHAScheduler("epoch", "val_rsum", "max", 10**6, halving.grace, halving.factor)
    trials: list[Any] = [SimpleNamespace(trial_id=str(number)) for number in range(8)]
    judge = Judge({trial.trial_id: halving for trial in trials}, Home(Path("nowhere")), ())
    for trial in trials:
        asha.on_trial_add(None, trial)
    epochs, stopped = [0] * len(trials), set[int]()
    for number, metric in results:
        if number in stopped:
            continue
        epochs[number] += 1
        row: dict[str, Any] = {"epoch": epochs[number], "val_rsum": metric}
        ends = asha.on_trial_result(None, trials[number], row) == ASHAScheduler.STOP
        verdict = judge(str(number), epochs[number], row)
        assert bool(verdict) is ends
        assert judge(str(number), epochs[number], row) is verdict
        if verdict:
            assert verdict["metric"] < verdict["bound"]
            stopped.add(number)


@given(st.lists(st.lists(METRICS, min_size=9, max_size=9), max_size=6), HALVINGS, st.integers(0, 60))
def test_trials_in_a_fixed_order_are_judged_alike_wherever_the_launch_was_killed(
    tmp_path_factory: pytest.TempPathFactory, metrics: list[list[float]], halving: Halving, kill: int
) -> None:
    """The kill comes after a row of the history was written, and before its judgement."""
    halvings = {str(number): halving for number in range(len(metrics))}

    def train(home: Home, kill: int) -> dict[str, int]:
        """The epoch after which each trial ended."""
        judge, ended, written = Judge(halvings, home, halvings), dict[str, int](), 0
        for trial_id, values in zip(halvings, metrics, strict=True):
            folder = home.trial(trial_id)
            folder.path.mkdir(parents=True, exist_ok=True)
            begun = len(list(folder.rows()))
            for epoch in range(max(begun, 1), len(values) + 1):  # the last epoch is judged again
                rows = [{"epoch": e, "step": e, "val_rsum": values[e - 1]} for e in range(1, epoch + 1)]
                folder.history.write_text("".join(json.dumps(row) + "\n" for row in rows))
                written += 1
                if written == kill:
                    return {}
                if folder.stopped.exists() or judge(trial_id, epoch, rows[-1]):
                    folder.stopped.touch()
                    break
            ended[trial_id] = len(list(folder.rows()))
        return ended

    once, again = (Home(tmp_path_factory.mktemp("runs")) for _ in range(2))
    train(again, kill)
    assert train(again, 0) == train(once, 0)


@pytest.mark.gate
def test_a_stopped_trial_is_a_state_of_its_own_and_goes_on_as_an_ordinary_trial(tmp_path: Path) -> None:
    jobs, undisturbed = searched(tmp_path / "a"), searched(tmp_path / "b")
    events, before = run(jobs), verdicts(jobs)
    stopped = [job for job in jobs if before[job.id] != "done"]
    assert stopped
    for job in stopped:
        folder, verdict = job.home.trial(job.id), before[job.id]
        assert (folder.state(), folder.last_checkpoint.exists()) == (State.STOPPED, True)
        assert [attempt.outcome() for attempt in folder.attempts()] == ["stopped"]
        row = list(folder.rows())[-1]
        assert (verdict["epoch"], verdict["metric"]) == (row["epoch"], row["val_rsum"])
        assert verdict["bound"] > verdict["metric"]
        assert f"val_rsum {verdict['metric']:.4g} after epoch {row['epoch']} misses" in next(
            event.message for event in events if (event.trial_id, event.kind) == (job.id, "stopped")
        )
    assert {event.kind for event in run(jobs)} == {"done"}
    assert verdicts(jobs) == before
    last = jobs.index(stopped[-1])
    again, once = (replace(some[last], halvings={}) for some in (jobs, undisturbed))
    run([again])
    run([once])
    assert verdicts([again]) == {again.id: "done"}
    rows = [[row | {"seconds": 0} for row in job.home.trial(job.id).rows()] for job in (again, once)]
    assert rows[0] == rows[1]


DAMAGES: dict[str, Callable[[list[bytes]], bytes]] = {
    "empty": lambda lines: b"",
    "without its first epoch": lambda lines: b"".join(lines[1:]),
    "without its last epoch": lambda lines: b"".join(lines[:-1]),
    "zeros": lambda lines: bytes(len(b"".join(lines))),
}


@pytest.mark.gate
def test_a_stopped_trial_with_a_damaged_history_is_restored_and_stopped_as_before(tmp_path: Path) -> None:
    """Though trials that came after it have reached the rung by now."""
    jobs = searched(tmp_path, epochs=4)
    run(jobs)
    before, folders = verdicts(jobs), [job.home.trial(job.id) for job in jobs]
    stopped = [folder for folder in folders if folder.state() is State.STOPPED]
    for folder, (name, damage) in zip(stopped * len(DAMAGES), DAMAGES.items(), strict=False):
        whole = folder.history.read_bytes()
        folder.history.write_bytes(damage(whole.splitlines(keepends=True)))
        assert folder.state() is State.INTERRUPTED, name
        kinds = [event.kind for event in run(jobs) if event.trial_id == folder.trial_id]
        assert kinds == ["started", "epoch", "stopped"], name
        assert folder.history.read_bytes() == whole, name
        assert verdicts(jobs) == before, name


def test_an_emptied_history_changes_no_later_judgement(tmp_path: Path) -> None:
    """That of a trial in training, once its checkpoint has restored it: its earlier rungs count for the others."""
    halvings = {name: Halving("cell", "val_rsum", grace=1) for name in ("first", "second")}
    home = Home(tmp_path)
    judge = Judge(halvings, home, halvings)
    rows = [{"epoch": epoch, "step": epoch, "val_rsum": 9.0} for epoch in (1, 2)]
    write_json_lines(home.trial("first").history, rows)
    assert judge("first", 2, rows[-1]) is None
    assert judge("second", 1, {"val_rsum": 1.0}) == {"epoch": 1, "by": "val_rsum", "metric": 1.0, "bound": 9.0}


@pytest.mark.parametrize("by", ["val_rsum", "val_i2t_r1"])
@pytest.mark.parametrize(("rsum", "stops"), [(20.0, False), (21.0, True)])
def test_a_bound_at_chance_stops_no_trial(tmp_path: Path, by: str, rsum: float, stops: bool) -> None:
    """Chance may reach 20: the rsum of the only other trial that is there decides, whatever metric is compared."""
    judge = Judge({name: Halving("cell", by, grace=1) for name in ("first", "second")}, Home(tmp_path), ())
    chance = {"val_chance": 20.0}
    assert judge("first", 1, {"val_i2t_r1": 5.0, "val_rsum": rsum, **chance}) is None
    assert bool(judge("second", 1, {"val_i2t_r1": 4.0, "val_rsum": 19.0, **chance})) is stops


@pytest.mark.slow
def test_a_launch_that_was_killed_at_several_places_stops_the_same_trials_at_the_same_epochs(tmp_path: Path) -> None:
    """Before a judgement by which a trial goes on or is stopped, after a stop, and at the start of a trial."""
    codes = []
    for before in (4, 5, 5, 3, 1, 1000):
        command = [sys.executable, "-c", KILLED, str(tmp_path / "killed"), str(before)]
        codes.append(client.run(command, cwd=ROOT).returncode)
    assert codes == [-signal.SIGKILL] * 5 + [0]
    killed, once = searched(tmp_path / "killed", epochs=4), searched(tmp_path / "once", epochs=4)
    run(once)
    assert verdicts(killed) == verdicts(once)
    assert {verdict["epoch"] for verdict in verdicts(once).values() if verdict != "done"}
    for job, other in zip(killed, once, strict=True):
        rows = [[row | {"seconds": 0} for row in some.home.trial(some.id).rows()] for some in (job, other)]
        assert rows[0] == rows[1]


@pytest.mark.gate
def test_a_chain_ends_with_its_stopped_trial_and_goes_on_from_it_without_the_rule(tmp_path: Path) -> None:
    one = job_of(tmp_path, *CHAINED)
    parent, child = (one.home.trial(trial_id) for trial_id in one.ids)
    kinds = list[str]()
    ruled = replace(one, halvings={parent.trial_id: Halving("cell", "val_rsum", grace=1)})
    worker.work(ruled, lambda event: kinds.append(event.kind), Stop(), judge=lambda *_: HOPELESS)
    assert (parent.state(), child.state()) == (State.STOPPED, State.PLANNED)
    assert worker.retryable(ruled) is None
    worker.work(ruled, lambda event: kinds.append(event.kind), Stop(), judge=lambda *_: HOPELESS)
    assert [kind for kind in kinds if kind != "step"] == ["started", "epoch", "stopped"]
    worker.work(one, lambda event: None, Stop())
    assert [folder.state() for folder in (parent, child)] == [State.DONE, State.DONE]


def test_a_process_waits_at_a_rung_until_it_is_asked_again_and_reads_its_verdict_then(tmp_path: Path) -> None:
    """Long before its next report would be due."""
    one = searched(tmp_path)[0]
    folder, process = one.home.trial(one.id), worker.JobThread(one.to_json(), "node")
    report = process.report(seconds=300)
    assert (report["trial"], report["epoch"], report["done"], process.live()) == (one.id, 1, False, True)
    (attempt,) = folder.attempts()
    write_json(attempt.verdict, HOPELESS)
    assert process.report(seconds=300)["done"]
    assert verdicts([one]) == {one.id: HOPELESS}
