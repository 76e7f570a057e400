"""Hours on a GPU that need not be here: the larger of the GPU's and of decoding, packed, and in other formats."""

import math
from dataclasses import replace
from pathlib import Path

import pytest

from goalgrid.grid.errors import UserError
from goalgrid.grid.gridfile import load
from goalgrid.grid.store.gpu_needs import Need
from goalgrid.grid.store.home import Home
from goalgrid.planning.costs import Key, Span
from goalgrid.planning.division import Division
from goalgrid.planning.gpu.decoding import OTHER
from goalgrid.planning.gpu.device_costs import COPIED, DeviceCost, _OnCard, device_cost
from goalgrid.planning.gpu.estimate import Estimate, Remedy
from goalgrid.planning.gpu.footprint import Footprint
from goalgrid.planning.gpu.trace import Work
from goalgrid.planning.machine_use import GpuMachine
from goalgrid.runners.gpu.cards import card
from goalgrid.state.grid_state import GridState

from ...conftest import Verb

PICTURES = 6000, 1000, 1000
"""Of Flickr8k's splits; each of the first has five captions."""
EPOCHS = 2


def cost_of(home: Path, gpus: int, cores: int | None, *words: str) -> DeviceCost:
    small = ["objectives=con_con", "seeds=[0,1]", f"train.epochs={EPOCHS}", *words]
    grid_state = GridState.of(load("flickr8k", small), Home(home))
    return device_cost(grid_state, grid_state.trials, (), GpuMachine(card("h100"), 2.0, gpus, cores))


PIXELS = 'recipes=["cnn-bow"]', "train.batch_size=100", "model.image.size=256"
"""Views of which a training split is too large to be kept in memory, and the others are kept."""


def decoded(threads: int) -> float:
    """Seconds in which so many threads decode what two trials read, at five captions an image."""
    train, val, test = PICTURES
    return 2 * (EPOCHS * 5 * train + val + test) * OTHER / threads


def test_hours_are_those_of_decoding_where_the_gpu_waits_for_pictures(tmp_path: Path) -> None:
    slow = cost_of(tmp_path, 1, 1, *PIXELS)
    (taken,) = slow.taken.values()
    assert taken.seconds is not None
    assert list(taken.seconds) == [pytest.approx(decoded(1))] * 2
    assert "decoding: 1 thread gives 323 images per second (640 x 480 images" in taken.decoding
    assert "cores per GPU" in taken.decoding
    jobs, threads = taken.feeding
    assert f"it needs {threads} cores per GPU" in taken.decoding
    assert slow.feeding == (jobs, math.ceil(threads / jobs))
    fed = cost_of(tmp_path, 0, None, *PIXELS, "resources.cpu=500")
    (other,) = fed.taken.values()
    assert other.seconds is not None
    assert decoded(500 * 2) < other.seconds.least < other.seconds.most
    assert other.decoding.endswith(f"the GPU takes {62_000 * 2 / other.seconds.least:,.0f}")
    assert "decoding: 1,000 threads give" in other.decoding, "no more than the two trials have"


def test_small_pictures_are_decoded_once_and_no_line_speaks_of_it(tmp_path: Path) -> None:
    (taken,) = cost_of(tmp_path, 1, 1, 'recipes=["cnn-bow"]', "train.batch_size=100").taken.values()
    assert taken.seconds is not None
    assert taken.seconds.least == pytest.approx(2 * sum(PICTURES) * OTHER)
    assert not taken.decoding
    assert taken.feeding[1] == 1


def test_time_on_the_clock_and_price_are_of_the_grid_as_it_is_packed(tmp_path: Path, verb: Verb) -> None:
    cost = cost_of(tmp_path, 2, 4, *PIXELS)
    assert cost.machine is not None
    assert list(cost.machine.clock) == [pytest.approx(decoded(1) / 2)] * 2, "a GPU for each of the two trials"
    (line,) = (line for line in cost.lines() if "wall-clock" in line)
    assert line.startswith("on 2 GPUs and 4 cores: ")
    assert line.endswith(f", {cost.machine.clock.least * 2 / 3600 * 2:.2g} at 2 per GPU-hour")
    assert cost_of(tmp_path, 0, None, *PIXELS).machine is None
    cheap = replace(cost, rented=replace(cost.rented, hourly=0.001)).lines()
    assert sum(line.endswith(", less than 0.01 at 0.001 per GPU-hour") for line in cheap) == 2
    assert (
        replace(cost, rented=replace(cost.rented, hourly=3.6)).rented.price(Span(1, 2000))
        == ", at most 2 at 3.6 per GPU-hour"
    )
    with pytest.raises(UserError, match="--gpus and --nodes describe a GPU machine"):
        verb("plan", "flickr8k", "--cores", "2", runs=Home(tmp_path))


def test_trials_that_wait_for_one_another_bound_the_time_on_the_clock(tmp_path: Path) -> None:
    chain = 'recipes=["vsepp-r152-tiny-ft"]', "model.image.size=64", "seeds=[0]"
    cost = cost_of(tmp_path, 64, None, *chain)
    spans = [taken.trained for taken in cost.taken.values() if taken.trained]
    assert cost.machine is not None
    assert len(spans) == 2
    assert cost.machine.clock.least == pytest.approx(sum(span.least for span in spans) + cost.once.least / 64)
    assert (cost.machine.busy, cost.machine.as_fast) == (1, 1)


def of_recipes(**helps: list[Remedy]) -> DeviceCost:
    """Two trials of 1,000 to 2,000 seconds of each recipe; a recipe with help does not fit on the card without it."""
    rented = GpuMachine(card("h100"), 3.6, 2)

    def taken(remedies: list[Remedy] | None) -> Estimate:
        need = Need("h100", 80e9, 1e9, 10e9 if remedies is None else 100e9)
        return Estimate(need, "estimated", "estimated", 2, Span(1000, 2000), remedies or [])

    keys = {name: Key("coco", name) for name in ("plain", *helps)}
    of_keys = {key: taken(helps.get(name)) for name, key in keys.items()}
    return DeviceCost(rented, of_keys, [[key] for key in keys.values()], Division(room=2))


def test_a_recipe_that_does_not_fit_counts_with_the_remedy_that_keeps_its_results() -> None:
    half, again = (
        Remedy("train.precision=bf16", 5e9, others=" (another trial)"),
        Remedy("train.micro_batch=2", 5e9, 1.5),
    )
    cost = of_recipes(large=[half, again])
    assert cost.seconds == Span(1000 + 1500, 2000 + 3000)
    lines = cost.lines()
    assert (
        "  what helps: train.precision=bf16 (another trial): 5.0 GB; train.micro_batch=2 (1.50 x the time): 5.0 GB"
        in lines
    )
    assert "the total assumes train.micro_batch=2 for large on coco" in lines
    assert "in all 0.69 to 1.4 hours of one h100, 2.5 to 5 at 3.6 per GPU-hour" in lines
    assert any(line.startswith("on 2 GPUs: ") for line in lines)
    assert cost.to_dict()["cost"] == Span(2.5, 5.0)


def test_there_is_no_total_where_nothing_that_keeps_the_results_makes_a_recipe_fit() -> None:
    cost = of_recipes(large=[Remedy("train.batch_size=2", 5e9, others=" (another trial)")], huge=[])
    lines = cost.lines()
    assert "no total: no setting that keeps the results makes large on coco or huge on coco fit on h100" in lines
    assert "all others 17 to 33 minutes of one h100, 1 to 2 at 3.6 per GPU-hour" in lines
    told = cost.to_dict()
    assert told["without"] == ["large on coco", "huge on coco"]
    assert (told["seconds"], told["clock_seconds"], told["cost"]) == (None, None, None)
    assert not any(line.startswith("in all") for line in lines)


def test_views_for_features_are_decoded_before_any_trial(tmp_path: Path) -> None:
    cost = cost_of(tmp_path, 0, None, 'recipes=["vsepp-r152-tiny"]', "resources.workers=3")
    (taken,) = cost.taken.values()
    crops = 4 * PICTURES[0] + sum(PICTURES[1:])  # the recipe's own number, for training images
    assert list(taken.once["feature_seconds"]) == [pytest.approx(crops * OTHER / 3)] * 2
    assert not taken.decoding


def test_other_number_formats_are_other_trials_and_take_less(tmp_path: Path) -> None:
    cost = cost_of(tmp_path, 0, None, 'recipes=["fc-gru"]', "train.batch_size=1000")
    (taken,) = cost.taken.values()
    assert taken.seconds is not None
    tf32, bf16 = taken.formats["train.tf32=true"], taken.formats["train.precision=bf16"]
    assert bf16.least < tf32.least < taken.seconds.least
    assert bf16.most < tf32.most < taken.seconds.most
    (line,) = (line for line in cost.lines() if line.startswith("with train.precision=bf16 "))
    assert line.endswith("changes results, hence different trial ids")


def test_checkpoints_of_every_epoch_are_counted(tmp_path: Path) -> None:
    grid_state = GridState.of(load("flickr8k", ['recipes=["fc-bow"]', "seeds=[0]", "train.epochs=7"]), Home(tmp_path))
    nothing = Work()
    kept = Footprint(0, 0, nothing, nothing, nothing, nothing, nothing, nothing, None, round(COPIED))
    found = _OnCard(grid_state, GpuMachine(card("h100")), frozenset(), {})._seconds(grid_state.trials[:1], kept)
    assert found == Span(7 * 3, 7 * 4) * (round(COPIED) / COPIED)


def test_trials_whose_steps_have_the_same_operations_are_traced_once(tmp_path: Path) -> None:
    file = tmp_path / "grid.toml"
    file.write_text(
        'name = "g"\ndatasets = ["coco", "flickr30k"]\nrecipes = ["fc-bow", "slower", "wider"]\n'
        'objectives = "con_con"\nseeds = 0\nrecipe.slower = { extends = "fc-bow", train.lr = 1e-5, train.epochs = 9 }\n'
        'recipe.wider = { extends = "fc-bow", model.dim = 100 }\n'
    )
    grid_state = GridState.of(load(str(file)), Home(tmp_path))
    costs = _OnCard(grid_state, GpuMachine(card("h100")), frozenset(), {})
    taken = {Key.of(trial): costs.taken(Key.of(trial), [trial]) for trial in grid_state.trials}
    assert len(taken) == 6
    assert len(costs._counts) == 2
