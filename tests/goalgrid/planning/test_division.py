"""How many GPUs work, how long, and how many are enough: held against jobs that are placed one by one."""

import math
import re
from dataclasses import replace
from itertools import product
from pathlib import Path

import pytest

from goalgrid.grid.expansion import expand, trials_of
from goalgrid.grid.gridfile import load
from goalgrid.grid.resources import Resources
from goalgrid.grid.store.home import Home
from goalgrid.planning.costs import Span
from goalgrid.planning.division import Division
from goalgrid.runners.launch.jobs import jobs_for, requests_for

from ..conftest import Verb

SECOND = Span(1, 1)
NODES = [(gpus, hosts) for gpus in (1, 2, 8) for hosts in (1, 4)]


def placed(count: int, gpus: int, hosts: int, *, at_once: int = 1000, words: tuple[str, ...] = ()) -> list[int]:
    """How many jobs get each GPU at the start, as Ray places requests: on the node with most room, its fullest GPU."""
    grid = load("demo", list(words))
    one = jobs_for(grid, trials_of(expand(grid)), Home(Path("/tmp/runs")), gpus=1)[0]
    if not words:
        one = replace(one, request=replace(one.request, gpu=0.3))
    room, jobs = [[10_000] * gpus for _ in range(hosts)], [[0] * gpus for _ in range(hosts)]
    for request in requests_for([one] * count, [gpus] * hosts, at_once=at_once)[:at_once]:
        asked = round(request.gpu * 10_000)
        for host in sorted(range(hosts), key=lambda host: -sum(room[host])):
            if fitting := [(left, gpu) for gpu, left in enumerate(room[host]) if left >= asked]:
                gpu = min(fitting)[1]
                room[host][gpu] -= asked
                jobs[host][gpu] += 1
                break
    return [number for of_host in jobs for number in of_host]


@pytest.mark.parametrize(("gpus", "hosts"), NODES)
def test_as_many_gpus_are_said_to_work_as_get_jobs(gpus: int, hosts: int) -> None:
    for count, at_once in product((1, 3, 9, 24, 33), (1000, 4)):
        on = placed(count, gpus, hosts, at_once=at_once)
        needed, said = Division(room=3, limit=at_once), Division(room=3, limit=at_once).at_a_time(count, gpus * hosts)
        assert needed.busy([SECOND] * count, gpus, hosts) == sum(map(bool, on))
        assert said <= sum(on) < said + hosts, "equal hosts get equal shares, with room for a job more on each"


def test_a_share_that_the_grid_sets_fills_a_gpu_before_the_next() -> None:
    shared = Division.of(Resources(gpu=0.25), room=100)
    assert shared.busy([SECOND] * 24, 8) == sum(map(bool, placed(24, 8, 1, words=("resources.gpu=0.25",)))) == 6


def test_replicas_hold_gpus_of_one_host_and_take_a_part_of_the_time() -> None:
    twins = Division.of(Resources(replicas=3), room=100)
    assert (twins.busy([SECOND] * 5, 8), twins.busy([SECOND] * 5, 8, hosts=2)) == (6, 12)
    assert twins.clock([Span(30, 60)] * 4, 8) == Span(20, 40)
    assert twins.as_fast([Span(30, 60)] * 5, 8, hosts=4) == 15
    assert Division.of(Resources(gpu=2), room=100).busy([SECOND] * 3, 8) == 3, "a process trains on one GPU of its two"


def test_the_time_is_that_of_the_gpu_with_most_work() -> None:
    one_by_one, shared = Division(room=1), Division(room=4)
    assert one_by_one.clock([Span(10, 30)] * 9, 8) == Span(20, 60)
    assert shared.clock([Span(10, 30)] * 9, 8) == Span(20, 30), "two jobs on a GPU fill each other's gaps"
    assert shared.clock([Span(10, 30)] * 9, 1) == Span(90, 90)
    assert shared.clock([Span(10, 30), *[Span(1, 1)] * 10], 4) == Span(10, 30)
    assert Division(room=4, limit=2).clock([Span(10, 30)] * 4, 8) == Span(20, 60)
    assert shared.clock([], 8) == Span(0, 0)


@pytest.mark.parametrize("jobs", [[Span(1, 1)] * 45, [Span(1, 3)] * 24, [Span(5, 9), *[Span(1, 2)] * 12], []])
def test_fewer_gpus_are_as_fast_down_to_a_number_that_a_search_one_by_one_finds(jobs: list[Span]) -> None:
    for division, gpus in product((Division(room=2), Division(room=4, limit=12)), (1, 8, 40, 64)):
        wanted = division.clock(jobs, gpus)
        enough = [n for n in range(1, gpus + 1) if math.dist(division.clock(jobs, n), wanted) <= 0.01 * wanted.least]
        assert division.as_fast(jobs, gpus) == (enough[0] if jobs else 0)


def test_a_plan_says_how_many_gpus_work_and_how_many_are_enough(tmp_path: Path, verb: Verb) -> None:
    words = "plan", "demo", "--device", "h100", "--hourly", "2"
    text = verb(*words, "--nodes", "8", "--gpus", "8", runs=Home(tmp_path)).stdout
    assert "on 64 GPUs of 8 hosts, 45 of them busy: " in text
    assert re.search(
        r"for 45 jobs, each a trial or a chain of trials, at most [\d.]+ at 2 per GPU-hour",
        text,
    )
    assert "as fast" not in verb(*words, "--gpus", "9", runs=Home(tmp_path)).stdout
