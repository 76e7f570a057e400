"""A job's work: its trials in order, which of them are tried again, and what a death leaves."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from goalgrid.grid.expansion import expand, trials_of
from goalgrid.grid.gridfile import load
from goalgrid.grid.settings import DataKey
from goalgrid.grid.store.attempts import Failure
from goalgrid.grid.store.home import Home, State
from goalgrid.retrieval.data.content import content
from goalgrid.runners.launch import shared_folder, worker
from goalgrid.runners.launch.jobs import Job, Launched, jobs_for
from goalgrid.runners.trial import lease
from goalgrid.runners.trial.events import Event
from goalgrid.runners.trial.retries import POLICY
from goalgrid.runners.trial.stopping import Stop

from ...conftest import SMALL

CHAINED = ('recipes=["vsepp-r152-tiny-ft"]', 'objectives=["con_con"]', "seeds=[0]")


def job(home: Path, *overrides: str) -> Job:
    """The first job of a small grid."""
    grid = load("demo", [*(word for word in SMALL if word != "--set"), *overrides])
    launched = Launched("now", shared_folder.mark(Home(home)))
    return jobs_for(grid, trials_of(expand(grid)), Home(home), gpus=0, launched=launched)[0]


def attempt(made: Job, outcome: str, number: int = 0, launch: str = "now") -> None:
    """An attempt at a trial of a job that ended like this."""
    folder = made.home.trial(made.ids[number])
    with lease.new_attempt(folder, Stop(), launch) as hold:
        folder.settings.touch()
        if outcome == "done":
            folder.done.touch()
        hold.end(outcome)


def tried(made: Job) -> list[str]:
    """Ids of the trials that are begun when the job is done again in the same round."""
    events: list[Event] = []
    worker.work(made, events.append, Stop())
    return [event.trial_id for event in events if event.kind == "started"]


@pytest.mark.parametrize("outcome", [failure for failure in Failure if POLICY[failure].tries > 1])
def test_what_a_death_left_goes_on_at_once_and_other_failures_wait_for_the_next_round(
    tmp_path: Path, outcome: Failure
) -> None:
    one = job(tmp_path, "train.epochs=1")
    offered = one.only(one.ids)
    attempt(offered, outcome)
    assert bool(tried(offered)) is POLICY[outcome].at_once
    again = worker.retryable(offered)
    assert (again is None) is POLICY[outcome].at_once  # it is done now
    if again:
        assert tried(again) == [one.id]
        assert worker.retryable(again) is None


def test_a_chain_that_broke_off_after_its_parent_goes_on_with_the_child(tmp_path: Path) -> None:
    chain = job(tmp_path, *CHAINED)
    offered = chain.only(chain.ids)
    attempt(offered, "done")
    attempt(offered, Failure.STORAGE, number=1)
    assert tried(offered) == []
    left = worker.retryable(offered)
    assert left is not None
    assert (left.ids, left.tried) == (chain.ids[1:], (1,))


def test_nothing_is_left_of_a_job_that_is_done_given_up_or_held(tmp_path: Path) -> None:
    chain = job(tmp_path, *CHAINED)
    parent = chain.home.trial(chain.ids[0])
    with lease.new_attempt(parent, Stop(), "another"):
        assert worker.live(chain)
        assert worker.retryable(chain) is None  # nor of its child, which waits
    attempt(chain, Failure.BUG)
    parent.error.write_text("bug: given up")
    assert worker.retryable(chain) is None
    attempt(chain, Failure.STORAGE, launch="on a broken host")
    assert worker.retryable(chain.only(chain.ids[:1])) is None, "this launch gave it up"
    parent.error.unlink()
    attempt(chain, "done")
    attempt(chain, "done", number=1)
    assert worker.retryable(chain) is None


def test_that_another_launch_gave_a_trial_up_does_not_count(tmp_path: Path) -> None:
    one = job(tmp_path)
    attempt(one, Failure.BUG, launch="on a broken host")
    one.home.trial(one.id).error.write_text("bug: given up")
    left = worker.retryable(one)
    assert left
    assert left.ids == one.ids
    assert tried(left) == [one.id]
    assert one.home.trial(one.id).state() is State.DONE


def test_a_job_that_is_asked_to_end_begins_no_trial(tmp_path: Path) -> None:
    stop = Stop()
    stop.ask()
    one, events = job(tmp_path), list[Event]()
    worker.work(one, events.append, stop)
    assert events == []
    assert one.home.trial(one.id).state() is State.PLANNED


def test_a_failure_that_wants_the_machine_for_itself_says_so(tmp_path: Path) -> None:
    one = job(tmp_path)
    assert (worker.alone(one), worker.pause(one)) == (False, 0.0)
    attempt(one, Failure.OUT_OF_MEMORY)
    assert (worker.alone(one), worker.pause(one)) == (True, POLICY[Failure.OUT_OF_MEMORY].wait)
    attempt(one, Failure.STORAGE, launch="another")
    assert worker.attempt_count(one) == 1


def test_a_job_without_the_runs_folder_fails_with_the_reason(tmp_path: Path) -> None:
    one, events = job(tmp_path), list[Event]()
    lost = replace(one, launched=replace(one.launched, mark="another", patience=0.0))
    worker.work(lost, events.append, Stop())
    assert [event.kind for event in events] == ["failed"]
    assert events[0].message.startswith("storage: this node does not see the runs folder")


def test_a_worker_of_other_code_makes_no_attempt(tmp_path: Path) -> None:
    one = job(tmp_path, "train.epochs=1")
    other = replace(one, launched=replace(one.launched, code="0123456789abcdef"))
    with pytest.raises(worker.Refused, match="its code differs from that of this launch"):
        tried(other)
    assert one.home.trials() == []
    assert tried(replace(one, launched=replace(one.launched, code=worker.PROGRAM))) == [one.id]


def test_a_worker_whose_data_are_not_the_launch_s_makes_no_attempt(tmp_path: Path, few_pictures: Path) -> None:
    few = (f'data.few.root="{few_pictures}"', 'datasets=["few"]', "dataset.train_images=40", "train.epochs=1")
    one = job(tmp_path, *few)
    other = replace(one, launched=replace(one.launched, data=((DataKey("few", False, None), "2:other"),)))
    with pytest.raises(worker.Refused, match=r"the data of 'few' under .* changed since this launch began"):
        tried(other)
    found = content("few", few_pictures, features=False).fingerprint
    assert tried(replace(one, launched=replace(one.launched, data=((DataKey("few", False, None), found),)))) == [one.id]


@pytest.mark.skipif(torch.cuda.is_available(), reason="the lent GPU is one that torch does not see")
def test_a_worker_on_a_node_whose_lent_gpu_does_not_work_makes_no_attempt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ray gives it one of the two; the node then gets no further job."""
    one = job(tmp_path, "train.epochs=1")
    on_gpu = replace(one, machine=replace(one.machine, gpu=True))
    monkeypatch.setenv("SLURM_GPUS_ON_NODE", "2")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    with pytest.raises(worker.Refused, match=r"Slurm allocated 1 GPU \(SLURM_GPUS_ON_NODE\), but torch sees none"):
        tried(on_gpu)
    assert one.home.trials() == []
    assert tried(one) == [one.id], "a job on CPUs alone"


def test_a_gpu_that_failed_for_good_ends_the_process_and_costs_one_of_two_tries(tmp_path: Path) -> None:
    """A loss of the user's own raises what torch raises after such an error."""
    own = tmp_path / "mine.py"
    own.write_text(
        "import goalgrid, torch\n\n\n@goalgrid.objective('broken')\ndef broken(t):\n"
        "    raise torch.AcceleratorError('CUDA error: an illegal memory access was encountered')\n"
    )
    one = job(tmp_path / "runs", f'uses=["{own}"]', 'objectives=["broken"]', "seeds=[0]")
    for _ in range(2):
        with pytest.raises(worker.DeviceFailed, match=r"illegal memory access .*can no longer use its GPU"):
            worker.work(one, lambda event: None, Stop())
    worker.work(one, lambda event: None, Stop())
    folder = one.home.trial(one.id)
    assert [attempt.failure() for attempt in folder.attempts()] == [Failure.DEVICE] * 2
    assert folder.reason().endswith("(2 attempts)")


def test_a_report_waits_for_the_end_of_the_job_and_has_all_its_events(tmp_path: Path) -> None:
    """Tune asks for the next report at once: one that did not wait would keep a CPU busy."""
    report = worker.JobThread(job(tmp_path, "train.epochs=1").to_json(), "node").report(seconds=300)
    assert report["done"]
    kinds = [event["kind"] for event in json.loads(report["events"])]
    assert (kinds[0], kinds[-1]) == ("started", "done")


@pytest.mark.gate
def test_a_report_has_the_metrics_of_all_epochs_since_the_one_before_and_says_of_which_trial(tmp_path: Path) -> None:
    one = job(tmp_path, *CHAINED)
    report = worker.JobThread(one.to_json(), "node").report(seconds=300)
    rows = [(trial, row["epoch"], row["val_rsum"]) for trial in one.ids for row in one.home.trial(trial).rows()]
    assert [(row["trial"], row["epoch"], row["val_rsum"]) for row in report["epochs"]] == rows
    assert (report["trial"], report["epoch"], report["val_rsum"]) == rows[-1]
