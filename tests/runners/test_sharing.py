"""How workers share a launch's jobs: each is had once, none idles while one is open, and what a death left goes on."""

import multiprocessing
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from grid.expansion import expand, trials_of
from grid.failures import Failure
from grid.gridfile import load
from grid.home import Home
from runners import attempts
from runners.attempts import Origin
from runners.jobs import Job, jobs_for
from runners.sharing import Offer, share
from runners.stopping import Stop

CHAINED = ('recipes=["vsepp-r152-tiny-ft"]', 'objectives=["con_con","infonce"]', "seeds=[0]")


def jobs(home: Path, *overrides: str) -> list[Job]:
    grid = load("demo", overrides)
    return jobs_for(grid, trials_of(expand(grid)), Home(home), gpus=0)


def attempt(job: Job, place: int = 0, outcome: str = "done") -> None:
    """An attempt at one of a job's trials that ended like this."""
    folder = job.place.trial(job.ids[place])
    with attempts.held(folder, Origin(job.launched.name), Stop()) as hold:
        folder.settings.touch()
        if outcome == "done":
            folder.done.touch()
        hold.end(outcome)


def had(offers: list[Offer], run: Callable[[Job], None] = attempt, stop: Stop | None = None) -> list[str]:
    """First ids of the jobs that one worker took, in their order."""
    taken: list[str] = []

    def note(job: Job) -> None:
        taken.append(job.ids[0])
        run(job)

    share(offers, note, stop or Stop())
    return taken


def test_one_worker_has_all_jobs_in_their_order(tmp_path: Path) -> None:
    some = jobs(tmp_path, "seeds=[0]")
    offers = [Offer.of(job) for job in some]
    assert had(offers) == [job.ids[0] for job in some]
    assert had(offers) == []


@pytest.mark.parametrize("workers", [2, 5])
def test_of_several_workers_each_has_what_no_other_had(tmp_path: Path, workers: int) -> None:
    offers = [Offer.of(job) for job in jobs(tmp_path, "seeds=[0,1]")]
    forks = multiprocessing.get_context("fork")
    together, taken = forks.Barrier(workers), forks.SimpleQueue()

    def run(job: Job) -> None:
        with suppress(attempts.Busy):
            attempt(job)
            taken.put(job.ids[0])

    def work() -> None:
        together.wait()
        share(offers, run, Stop())

    processes = [forks.Process(target=work) for _ in range(workers)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [0] * workers
    assert sorted(taken.get() for _ in offers) == sorted(offer.ids[0] for offer in offers)
    assert taken.empty()


@pytest.mark.parametrize("outcome", list(Failure))
def test_what_a_death_left_goes_on_at_once_and_other_failures_wait_for_the_next_round(
    tmp_path: Path, outcome: Failure
) -> None:
    first, *others = jobs(tmp_path, "seeds=[0]")
    offers = [Offer.of(job) for job in (first, *others)]
    attempt(first, outcome=outcome)
    at_once = outcome in (Failure.KILLED, Failure.TIMEOUT, Failure.NODE_LOST, Failure.PREEMPTED)
    assert (first.ids[0] in had(offers)) is at_once
    again = [Offer.of(job) for job in (first, *others)]
    assert had(again) == ([] if at_once else [first.ids[0]])


def test_nobody_takes_a_job_whose_trial_is_being_trained_or_has_failed_for_good(tmp_path: Path) -> None:
    first, second, *_ = jobs(tmp_path, "seeds=[0]")
    offers = [Offer.of(first), Offer.of(second)]
    with attempts.held(first.place.trial(first.ids[0]), Origin(), Stop()):
        assert had(offers) == [second.ids[0]]
    folder = first.place.trial(first.ids[0])
    folder.error.write_text("killed: once too often")
    assert had(offers) == []


def test_a_chain_that_broke_off_after_its_parent_goes_on_with_the_child(tmp_path: Path) -> None:
    first, _ = jobs(tmp_path, *CHAINED)
    offers = [Offer.of(first)]
    attempt(first)
    attempt(first, place=1, outcome=Failure.KILLED)
    assert had(offers, lambda job: attempt(job, place=1)) == [first.ids[0]]
    assert first.place.trial(first.ids[1]).done.exists()


def test_a_chain_whose_parent_failed_is_not_begun_again_in_the_same_round(tmp_path: Path) -> None:
    first, _ = jobs(tmp_path, *CHAINED)
    offers = [Offer.of(first)]
    attempt(first, outcome=Failure.STORAGE)
    assert had(offers) == []


@given(asked=st.integers(0, 14))
def test_a_worker_that_is_asked_to_end_takes_no_further_job(
    tmp_path_factory: pytest.TempPathFactory, asked: int
) -> None:
    offers, stop, runs = [Offer.of(job) for job in jobs(tmp_path_factory.mktemp("runs"), "seeds=[0]")], Stop(), 0

    def run(job: Job) -> None:
        nonlocal runs
        runs += 1
        attempt(job)
        if runs > asked:
            stop.ask()

    assert len(had(offers, run, stop)) == asked + 1
