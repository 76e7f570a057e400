"""Any interleaving of crashes, stops, damage and restarts ends in the same records. Real processes, really killed."""

import os
import signal
import tempfile
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from goalgrid.grid.expansion import Cell, expand, trials_of
from goalgrid.grid.gridfile import Grid, load
from goalgrid.grid.store.home import Home
from goalgrid.results.records.record import differences
from goalgrid.runners.launch.jobs import Job, Launched, jobs_for
from goalgrid.runners.launch.worker import work
from goalgrid.runners.training.progress import Cadence
from goalgrid.runners.trial.events import Event
from goalgrid.runners.trial.stopping import Stop

from ...conftest import SMALL
from ...goalgrid.processes import done_at, forked, trained_after_done

WRITING = ("open", "os.rename", "os.link", "os.remove", "os.mkdir")
"""What Python tells its audit hooks of, before it does it, when files change."""


@dataclass(frozen=True)
class Moment:
    """Right before a driver changes the n-th time what has this in its name."""

    name: str
    n: int


@dataclass(frozen=True)
class Crash:
    """One or two drivers start at once; each is killed with -9 at its moment."""

    at: tuple[Moment, ...]


@dataclass(frozen=True)
class Ask:
    """A driver that is asked to end by a signal."""

    at: Moment


@dataclass(frozen=True)
class Damage:
    """A checkpoint that stands there gets one wrong byte, or loses its second half."""

    name: str
    cut: bool


MOMENTS = st.builds(Moment, st.just("trials"), st.integers(1, 250)) | st.builds(
    Moment, st.sampled_from(["attempts", "best.ckpt", "record.parquet", "done"]), st.integers(1, 10)
)
"""Undisturbed, the two trials change about 250 files, most of them checkpoints."""

EVENTS = (
    st.builds(Crash, st.tuples(MOMENTS) | st.tuples(MOMENTS, MOMENTS))
    | st.builds(Ask, MOMENTS)
    | st.builds(Damage, st.sampled_from(["last.ckpt", "previous.ckpt"]), st.booleans())
)


@dataclass(frozen=True)
class Undisturbed:
    grid: Grid
    cells: list[Cell]
    home: Home


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Undisturbed:
    """Two trials of ten steps each, as they come out when nobody disturbs them."""
    small = [word for word in SMALL if word != "--set"]
    more = ["train.batch_size=1000", 'objectives=["con_con","sig-ms_cir"]', "seeds=[0]"]
    grid = load("demo", [*small, *more])
    home = Home(tmp_path_factory.mktemp("undisturbed"))
    run(jobs(grid, home, "whole"), Stop())
    return Undisturbed(grid, expand(grid), home)


def jobs(grid: Grid, home: Home, launch: str) -> list[Job]:
    """Those of a launch over what is not done, with a checkpoint every second step."""
    home.path.mkdir(parents=True, exist_ok=True)
    home.mark.write_text("a mark\n")
    launched = Launched(launch, "a mark", cadence=Cadence(steps=2))
    left = [trial for trial in trials_of(expand(grid)) if not home.trial(trial.id).done.exists()]
    return jobs_for(grid, left, home, gpus=0, launched=launched)


def run(all_jobs: list[Job], stop: Stop) -> None:
    events: list[Event] = []
    for job in all_jobs:
        work(job, events.append, stop)


def driver(all_jobs: list[Job], home: Home, *, at: Moment, number: int) -> int:
    """Start a process that runs these jobs and sends itself this signal at that moment; its id."""

    def work_on() -> None:
        stop = Stop()
        signal.signal(signal.SIGTERM, lambda *_: stop.ask())
        run(all_jobs, stop)

    def moment(event: str, arguments: tuple[object, ...]) -> bool:
        path = str(arguments[0]) if event in WRITING else ""
        return path.startswith(str(home.path)) and at.name in path

    return forked(work_on, moment, at.n, lambda: os.kill(os.getpid(), number))


def happen(event: Crash | Ask | Damage, launch: str, grid: Grid, home: Home) -> None:
    if isinstance(event, Damage):
        for path in home.path.glob(f"trials/*/{event.name}"):
            content = bytearray(path.read_bytes())
            content[len(content) // 2] ^= 1
            path.write_bytes(content[: len(content) // 2] if event.cut else content)
        return
    moments = event.at if isinstance(event, Crash) else (event.at,)
    number = signal.SIGKILL if isinstance(event, Crash) else signal.SIGTERM
    started = [
        driver(jobs(grid, home, f"{launch}-{turn}"), home, at=moment, number=number)
        for turn, moment in enumerate(moments)
    ]
    for pid in started:
        os.waitpid(pid, 0)


SCHEDULES = st.lists(EVENTS, min_size=1, max_size=5)


@pytest.mark.gate
@settings(max_examples=3)
@given(events=SCHEDULES)
def test_any_interleaving_ends_in_the_same_records(
    undisturbed: Undisturbed, events: list[Crash | Ask | Damage]
) -> None:
    assert_ends_in_the_same_records(undisturbed, events)


@pytest.mark.slow
@settings(max_examples=50)
@given(events=SCHEDULES)
def test_any_of_many_interleavings_ends_in_the_same_records(
    undisturbed: Undisturbed, events: list[Crash | Ask | Damage]
) -> None:
    assert_ends_in_the_same_records(undisturbed, events)


def assert_ends_in_the_same_records(undisturbed: Undisturbed, events: list[Crash | Ask | Damage]) -> None:
    grid, first_done = undisturbed.grid, dict[str, tuple[int, ...]]()
    with tempfile.TemporaryDirectory() as folder:
        home = Home(Path(folder))
        for number, event in enumerate(events):
            happen(event, f"launch-{number}", grid, home)
            first_done = done_at(home) | first_done
        run(jobs(grid, home, "the last"), Stop())
        assert differences(undisturbed.cells, undisturbed.home, home) == []
        assert {name: done_at(home)[name] for name in first_done} == first_done
        assert trained_after_done(home) == []
        assert not list(home.path.glob("trials/*/.*"))
