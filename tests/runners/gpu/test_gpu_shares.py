"""Shares of a GPU: what jobs ask for, by what was measured, stated in the grid, or stated by the recipe."""

import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from goalgrid.grid.errors import UserError
from goalgrid.grid.expansion import expand, trials_of
from goalgrid.grid.gridfile import load
from goalgrid.grid.resources import Resources
from goalgrid.grid.store.gpu_needs import Need
from goalgrid.grid.store.home import Home
from goalgrid.grid.store.speed_probes import speed_of
from goalgrid.runners.gpu import memory_probe
from goalgrid.runners.gpu.memory_probe import Probed
from goalgrid.runners.launch.jobs import Job, jobs_for, requests_for, samples, with_share
from goalgrid.runners.training.machine import Machine
from tests.fork_server import client

GB = 1e9
CHAIN = ('recipes=["vsepp-r152-tiny-ft"]', 'objectives=["con_con","infonce"]', "seeds=[0]")


def jobs(*overrides: str, gpus: int = 1) -> list[Job]:
    grid = load("demo", ['recipes=["cnn-bow"]', *overrides])
    return jobs_for(grid, trials_of(expand(grid)), Home(Path("/tmp/runs")), gpus=gpus)


def need(alone: float = 1.0, *, total: float = 24.0, device: str = "a GPU") -> Need:
    """In GB."""
    return Need(device, total * GB, 0.5 * GB, alone * GB)


def needs(some: list[Job], found: Need) -> dict[str, Need]:
    return {speed_of(settings): found for job in some for settings in job.trials}


class Replies:
    """GPUs on which a probe found this."""

    def __init__(self, *replies: Probed | Exception) -> None:
        self.replies, self.asked = replies, list[str]()

    def __call__(
        self, function: Callable[..., Probed], wanted: Mapping[str, str], machine: Machine, home: Home
    ) -> list[Probed]:
        self.asked += wanted.values()
        for reply in self.replies:
            if isinstance(reply, Exception):
                raise reply
        return list(self.replies)


def measured(replies: Replies, some: Sequence[Job]) -> tuple[memory_probe.Needs, list[str]]:
    """What is found, and what is said of it."""
    said = list[str]()
    some, machine, home = samples(some), some[0].machine, Home(Path("/tmp/runs"))
    return memory_probe.needs_of(some, machine, replies, home, said.append), said


def test_a_measured_share_replaces_the_recipes_and_bounds_what_is_allocated() -> None:
    some, found = jobs(), need()
    for job in [with_share(one, needs(some, found)) for one in some]:
        assert job.request.gpu == found.share() == 0.08
        assert 0 < job.request.memory < job.request.gpu
        assert Job.from_json(job.to_json()) == job


def test_without_a_measurement_the_recipes_share_counts_and_is_the_bound() -> None:
    job = with_share(jobs()[0], {})
    assert (job.request.gpu, job.request.memory) == (0.25, 0.25)


def test_a_whole_gpu_is_not_bounded_and_no_gpu_is_none() -> None:
    assert jobs("resources.gpu=2")[0].request.memory == 1.0
    assert jobs(gpus=0)[0].request.memory == 1.0


def test_gpus_that_no_process_uses_are_named_and_replicas_over_gloo_may_share_a_gpu() -> None:
    assert "so the others of each job are idle. resources.replicas = 2 uses them all." in Resources(gpu=2).idle
    assert Resources(gpu=0.5).idle == Resources(replicas=2).idle == ""
    shared = jobs("resources.replicas=2", 'resources.exchange="gloo"')[0]
    assert (shared.request.gpu, shared.machine.resources.exchange) == (1.0, "gloo")
    assert jobs("resources.replicas=2")[0].request.gpu == 2
    with pytest.raises(ValueError, match='exchange = "gloo" lets them share a GPU'):
        Resources(replicas=2, gpu=1)


def test_a_chain_asks_for_what_its_largest_trial_needs() -> None:
    job = jobs(*CHAIN)[0]
    parent, child = (speed_of(settings) for settings in job.trials)
    both = {parent: need(1.0), child: need(9.0)}
    assert with_share(job, both).request.gpu == need(9.0).share()
    assert with_share(job, {child: need(9.0)}).request == job.request


def test_one_trial_of_each_kind_is_probed_unless_the_grid_states_the_share() -> None:
    both = jobs('recipes=["cnn-bow","cnn-gru"]')
    assert [settings.recipe for settings in samples(both).values()] == ["cnn-bow", "cnn-gru"]
    assert samples(jobs("resources.gpu=0.5")) == {}
    assert samples(jobs("resources.replicas=2")) == {}
    assert samples(jobs(gpus=0)) == {}


def test_of_different_gpus_the_smallest_decides_and_that_is_said() -> None:
    some = jobs()
    small, large = need(device="small", total=16), need(device="large", total=80)
    driver = Replies(*(Probed([(int(it.total), it.device)], needs(some, it)) for it in (large, small)))
    found, said = measured(driver, some)
    assert set(found.values()) == {small}
    assert said == ["the GPUs differ; shares are computed for the smallest: small (16 GB), large (80 GB)"]
    assert driver.asked == [some[0].trials[0].model_dump_json()]


def test_a_trial_that_does_not_fit_is_an_error_before_anything_starts() -> None:
    with pytest.raises(UserError, match="needs more than"):
        measured(Replies(Probed([], {}, "out of memory: it needs more than there is")), jobs())


def test_a_probe_that_fails_costs_a_warning() -> None:
    found, said = measured(Replies(RuntimeError("no driver")), jobs())
    assert found == {}
    assert said == [
        "the memory of trials could not be measured, so the GPU shares of their recipes are used: no driver"
    ]


def test_nothing_is_probed_where_there_is_no_gpu() -> None:
    driver = Replies(RuntimeError("asked"))
    assert measured(driver, jobs(gpus=0)) == ({}, [])
    assert driver.asked == []


def asked(count: int, gpus: int, share: float, at_once: int = 1000) -> Counter[float]:
    """How many of so many jobs ask for which part of a GPU."""
    one = jobs()[0]
    one = replace(one, request=replace(one.request, gpu=share, memory=share))
    requests = requests_for([one] * count, [gpus], at_once=at_once)
    assert {request.memory for request in requests} == {share}  # what a job may allocate is its need
    return Counter(request.gpu for request in requests)


@pytest.mark.parametrize(
    ("count", "gpus", "share", "at_once", "expected"),
    [
        (24, 64, 0.3, 1000, {1.0: 24}),
        (33, 8, 0.03, 1000, {0.2: 5, 0.25: 28}),
        (9, 4, 0.1, 1000, {0.3333: 3, 0.5: 6}),
        (8, 8, 0.25, 1000, {1.0: 8}),
        (12, 8, 0.6, 1000, {1.0: 12}),  # two turns, with a GPU for each job
        (100, 8, 0.1, 1000, {0.1428: 14 + 50, 0.1666: 36}),  # two turns of 50: 7 on two GPUs, 6 on six
        (32, 8, 0.03, 4, {1.0: 32}),  # four at a time
        (80, 8, 0.1, 1000, {0.1: 80}),
    ],
)
def test_jobs_ask_for_shares_that_spread_them_over_the_gpus(
    count: int, gpus: int, share: float, at_once: int, expected: dict[float, int]
) -> None:
    assert asked(count, gpus, share, at_once) == expected


def test_a_share_that_the_grid_sets_stays_and_so_does_a_whole_gpu() -> None:
    for some in (jobs("resources.gpu=0.25"), jobs("resources.gpu=1"), jobs("resources.replicas=2"), jobs(gpus=0)):
        assert requests_for(some, [8], at_once=100) == [job.request for job in some]


PLACE = """
import ray
from collections import Counter
from dataclasses import replace
from pathlib import Path
from ray.cluster_utils import Cluster
from ray.util.placement_group import placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy as In
from goalgrid.grid.expansion import expand, trials_of
from goalgrid.grid.gridfile import load
from goalgrid.grid.store.home import Home
from goalgrid.runners.launch.jobs import jobs_for
from goalgrid.runners.launch.ray_tune import _requests
grid = load("demo")
some = jobs_for(grid, trials_of(expand(grid)), Home(Path("/tmp/runs")), gpus=1)
cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "num_gpus": 4, "resources": {"four": 1}})
for gpus, name in [(1, "one")] * 4 + [(2, "two")] * 2:
    cluster.add_node(num_cpus=1, num_gpus=gpus, resources={name: 1})
ray.init(cluster.address, logging_level="critical", log_to_driver=False)
@ray.remote(num_cpus=0)
class Process:
    def gpu(self): return ray.get_runtime_context().get_node_id(), *ray.get_gpu_ids()
def job(at, name):
    request = replace(some[at].request, gpu=0.05, memory=0.05, custom=((name, 0.001),))
    return replace(some[at], request=request, ids=(str(at),))
names = ["four", "one"] * 9 + ["two"] * 5
asked = [request.resources for request in _requests([job(*at) for at in enumerate(names)], 100)]
places = [placement_group([{"GPU": each["GPU"], name: 0.001}]) for each, name in zip(asked, names)]
assert all(place.wait(60) for place in places), [place.wait(0) for place in places]
processes = [Process.options(num_gpus=each["GPU"], scheduling_strategy=In(place)).remote()
             for each, place in zip(asked, places)]
on = ray.get([process.gpu.remote() for process in processes], timeout=120)
for wanted in ("four", "one", "two"):
    print(*sorted(Counter(gpu for gpu, name in zip(on, names) if name == wanted).values()))
"""


@pytest.mark.gate
def test_ray_gives_each_gpu_of_each_node_its_part_of_the_jobs_and_none_waits() -> None:
    """Nine jobs on a node with four GPUs, nine on four with one, five on two with two, by resources of their own."""
    found = client.run([sys.executable, "-c", PLACE], timeout=300)
    assert found.stdout.splitlines() == ["2 2 2 3", "2 2 2 3", "1 1 1 2"], found.stderr
