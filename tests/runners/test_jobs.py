"""Jobs: what they ask of the machine, and that they cross process borders unchanged."""

from pathlib import Path

import pytest

from grid.errors import UserError
from grid.expansion import Trial, expand, trials_of
from grid.gridfile import load
from grid.home import Home
from grid.running import Resources
from runners.jobs import Capacity, Job, Launched, chains, concurrency, gpu_share, jobs_for
from runners.trainer import Cadence


def jobs(*overrides: str, gpus: int = 0) -> list[Job]:
    grid = load("demo", overrides)
    return jobs_for(grid, trials_of(expand(grid)), Home(Path("/tmp/runs")), gpus=gpus)


def test_a_job_survives_its_json() -> None:
    grid = load("flickr8k", ['resources.custom={"accelerator_type:A100" = 0.001}'], roots=["/data"])
    launched = Launched("a launch", "a mark", 3.0, Cadence(5, None))
    job = jobs_for(grid, trials_of(expand(grid)), Home(Path("/tmp/runs")), gpus=1, launched=launched)[3]
    assert Job.from_json(job.to_json()) == job
    assert job.machine.root("flickr8k") == Path("/data")


def test_without_a_gpu_none_is_asked_for() -> None:
    assert jobs("resources.gpu=0.5")[0].request.gpu == 0
    assert jobs()[0].machine.gpu is False


def test_the_recipe_says_its_share_of_a_gpu_and_the_grid_overrules_it() -> None:
    assert jobs(gpus=1)[0].request.gpu == 0.25
    assert jobs("resources.gpu=0.5", gpus=1)[0].request.gpu == 0.5


def test_a_share_that_ray_cannot_place_is_an_error() -> None:
    with pytest.raises(UserError, match=r"resources\.gpu"):
        gpu_share(Resources(gpu=1.5), "cnn-bow")


@pytest.mark.parametrize("setting", ["cpu=0", "gpu=-1", "concurrency=0", "workers=0"])
def test_less_than_nothing_is_an_error(setting: str) -> None:
    with pytest.raises(UserError, match=rf"resources\.{setting.split('=')[0]}.*: Input should be greater"):
        load("demo", [f"resources.{setting}"])


@pytest.mark.parametrize(
    ("resources", "gpu", "cpus", "gpus", "expected"),
    [
        (Resources(), 0, 8, 0, 8),
        (Resources(), 0.25, 8, 1, 4),
        (Resources(), 0.25, 2, 1, 2),
        (Resources(concurrency=3), 0, 8, 0, 3),
        (Resources(concurrency=30), 0, 8, 0, 8),
    ],
)
def test_concurrency_is_what_fits(resources: Resources, gpu: float, cpus: int, gpus: int, expected: int) -> None:
    job = jobs(f"resources.gpu={gpu}", gpus=gpus)[0]
    assert concurrency(resources, [job], Capacity(cpus, gpus, (cpus, gpus))) == expected


def test_a_job_that_does_not_fit_is_an_error() -> None:
    with pytest.raises(UserError, match="asks for 64 CPUs"):
        concurrency(Resources(), jobs("resources.cpu=64"), Capacity(128, 0, (2, 0)))


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
    children = [trial for trial in trials_of(expand(grid)) if trial.parent]
    assert [len(job.ids) for job in jobs_for(grid, children, Home(Path("/tmp/runs")), gpus=0)] == [1] * 4


def test_two_children_of_one_parent_share_its_job() -> None:
    first, second = (trial for trial in trials_of(expand(load("demo", [*CHAINED, "seeds=[0]"])))[:2])
    twins = [Trial(f"{first.id}-{n}", first.settings.model_copy(update={"starts_from": first.id})) for n in "ab"]
    assert [[one.id for one in chain] for chain in chains([first, *twins, second])] == [
        [first.id, twins[0].id, twins[1].id],
        [second.id],
    ]


def test_a_job_that_broke_off_has_left_what_another_try_may_help(tmp_path: Path) -> None:
    grid = load("demo", CHAINED)
    job = jobs_for(grid, trials_of(expand(grid)), Home(tmp_path), gpus=0)[0]
    parent = Home(tmp_path).trial(job.ids[0])
    parent.path.mkdir(parents=True)
    parent.done.touch()
    left = job.left()
    assert left is not None
    assert left.ids == (job.ids[1],)
    parent.done.unlink()
    parent.error.write_text("bug: it failed for good")
    assert job.left() is None
