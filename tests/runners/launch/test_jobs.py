"""Jobs: what they ask of the machine, and that they cross process borders unchanged."""

from pathlib import Path

import pytest

from goalgrid.grid.errors import UserError
from goalgrid.grid.expansion import chains, expand, trials_of
from goalgrid.grid.gridfile import load
from goalgrid.grid.settings import DataKey
from goalgrid.grid.store.home import Home
from goalgrid.runners.launch.driver import Capacity, check_room
from goalgrid.runners.launch.jobs import Job, Launched, jobs_for, machine_for
from goalgrid.runners.training.progress import Cadence


def jobs(*overrides: str, gpus: int = 0) -> list[Job]:
    grid = load("demo", overrides)
    return jobs_for(grid, trials_of(expand(grid)), Home(Path("/tmp/runs")), gpus=gpus)


def test_a_job_survives_its_json() -> None:
    grid = load("flickr8k", ['resources.custom={"accelerator_type:A100" = 0.001}'], roots=["/data"])
    data = ((DataKey("few", False, "words.txt"), "2:ab"),)
    launched = Launched("a launch", "a mark", 3.0, Cadence(5, None), data=data)
    job = jobs_for(grid, trials_of(expand(grid)), Home(Path("/tmp/runs")), gpus=1, launched=launched)[3]
    assert Job.from_json(job.to_json()) == job
    assert job.machine.root("flickr8k") == Path("/data")


def test_places_begin_at_a_variable_of_the_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    grid = load("flickr8k", ["resources.features=$SLURM_TMPDIR/features"], roots=["$SLURM_TMPDIR/f8k"])
    assert 'root = "$SLURM_TMPDIR/f8k"' in grid.to_toml()
    monkeypatch.setenv("SLURM_TMPDIR", "/scratch/7")
    machine = machine_for(grid, Home(Path("/tmp/runs")), gpu=False)
    assert (machine.root("flickr8k"), machine.features) == (Path("/scratch/7/f8k"), Path("/scratch/7/features"))


def test_without_a_gpu_none_is_asked_for() -> None:
    assert jobs()[0].request.gpu == 0
    assert jobs()[0].machine.gpu is False


def test_the_recipe_says_its_share_of_a_gpu_and_the_grid_overrules_it() -> None:
    assert jobs(gpus=1)[0].request.gpu == 0.1
    assert jobs("resources.gpu=0.5", gpus=1)[0].request.gpu == 0.5


def test_a_gpu_that_the_grid_asks_for_and_nobody_has_is_an_error() -> None:
    with pytest.raises(UserError, match=r"resources\.gpu = 0\.5, but there is no GPU\. .*: --set resources\.gpu=0\."):
        check_room(jobs("resources.gpu=0.5"), Capacity(({"CPU": 8},)))
    for unasked in (jobs(), jobs("resources.gpu=0"), jobs("resources.replicas=2")):
        check_room(unasked, Capacity(({"CPU": 8},)))


def test_each_replica_has_cpus_and_a_gpu_of_its_own() -> None:
    two = ("resources.replicas=2", "resources.cpu=3")
    (on_cpus, on_gpus, kept) = (jobs(*two)[0], jobs(*two, gpus=4)[0], jobs(*two, "resources.gpu=0", gpus=4)[0])
    assert [(job.request.cpu, job.request.gpu) for job in (on_cpus, on_gpus, kept)] == [(6, 0), (6, 2), (6, 0)]
    assert [job.machine.resources.replicas for job in (on_cpus, on_gpus, kept)] == [2, 2, 2]
    assert jobs("resources.replicas=2", "resources.gpu=2", gpus=2)[0].request.gpu == 2
    assert Job.from_json(on_gpus.to_json()) == on_gpus
    with pytest.raises(UserError, match="the largest node has 8 CPU and 1 GPU"):
        check_room([on_gpus], Capacity(({"CPU": 8, "GPU": 1},)))


@pytest.mark.parametrize("gpu", [0.5, 1, 3])
def test_replicas_share_no_gpu_and_leave_none_idle(gpu: float) -> None:
    with pytest.raises(UserError, match=f"resources: .*gpu = {gpu:g} conflicts with replicas = 2.* or give 2"):
        load("demo", ["resources.replicas=2", f"resources.gpu={gpu}"])


@pytest.mark.parametrize("setting", ["cpu=0", "gpu=-1", "concurrency=0", "workers=0", "replicas=0"])
def test_less_than_nothing_is_an_error(setting: str) -> None:
    with pytest.raises(UserError, match=rf"resources\.{setting.split('=')[0]}.*: it should be a"):
        load("demo", [f"resources.{setting}"])


def test_a_job_has_to_fit_on_one_node() -> None:
    nodes = Capacity(({"CPU": 3}, {"CPU": 3, "GPU": 2}, {"GPU": 1}))
    check_room(jobs("resources.cpu=2"), nodes)
    check_room(jobs("resources.cpu=2", "resources.gpu=0.5", gpus=3), nodes)
    with pytest.raises(UserError, match="a job requests 4 CPU, but the largest node has 3 CPU"):
        check_room(jobs("resources.cpu=4"), nodes)
    with pytest.raises(UserError, match="requests 1 CPU and 3 GPU, but the largest node has 3 CPU and 2 GPU"):
        check_room(jobs("resources.gpu=3", gpus=3), nodes)


def test_a_resource_of_ones_own_counts_where_it_is() -> None:
    nodes = Capacity(({"CPU": 8}, {"CPU": 2, "fast": 1}))
    check_room(jobs('resources.custom={"fast" = 0.25}'), nodes)
    slow = jobs('resources.custom={"slow" = 1}')
    with pytest.raises(
        UserError, match=r"requests 1 CPU and 1 slow, but the largest node has 8 CPU and 0 slow.*no node has slow"
    ):
        check_room(slow, nodes)
    with pytest.raises(
        UserError, match=r"1 CPU and 1,000,000,000 memory, but .* must name resources of nodes in the Ray cluster"
    ):
        check_room(jobs('resources.custom={"memory" = 1e9}'), nodes)
    check_room(slow, nodes, custom=False)


CHAINED = ('recipes=["vsepp-r152-tiny-ft"]', 'objectives=["con_con","infonce"]', "seeds=[0,1]")


def test_a_job_is_a_chain_parent_first() -> None:
    chained = jobs(*CHAINED)
    assert len(chained) == 4
    for job in chained:
        parent, child = job.trials
        assert child.starts_from == job.ids[0]
        assert (parent.objective, parent.seed) == (child.objective, child.seed)


def test_a_chain_asks_for_the_most_that_one_of_its_trials_needs() -> None:
    assert jobs(*CHAINED, gpus=1)[0].request.gpu == 0.25


def test_a_child_whose_parent_is_done_is_a_job_of_its_own() -> None:
    grid = load("demo", CHAINED)
    children = [trial for trial in trials_of(expand(grid)) if trial.parents]
    assert [len(job.ids) for job in jobs_for(grid, children, Home(Path("/tmp/runs")), gpus=0)] == [1] * 4


def test_two_children_of_one_parent_share_its_job() -> None:
    first, second = (trial for trial in trials_of(expand(load("demo", [*CHAINED, "seeds=[0]"])))[:2])
    twins = [first._replace(id=f"{first.id}-{n}", parents=(first.id,)) for n in "ab"]
    assert [[one.id for one in chain] for chain in chains([first, *twins, second])] == [
        [first.id, twins[0].id, twins[1].id],
        [second.id],
    ]
