"""The memory probe: what it trains is the most that a trial of its kind takes."""

from pathlib import Path

import pytest
import torch

from goalgrid.grid.expansion import expand, trials_of
from goalgrid.grid.gridfile import load
from goalgrid.grid.settings import TrialSettings
from goalgrid.grid.store import gpu_needs
from goalgrid.grid.store.home import Home
from goalgrid.grid.store.speed_probes import speed_of
from goalgrid.runners.gpu.memory_probe import (
    STEPS,
    apart,
    heaviest_objective,
    heavy,
    longest,
    peak_of,
    probe,
    train,
    with_stand_ins,
)
from goalgrid.runners.training.inputs import batches, prepare, protocols_of
from goalgrid.runners.training.learner import Learner
from goalgrid.runners.training.machine import Machine
from goalgrid.runners.training.trainer import Trainer

TINY = ('recipes=["cnn-bow"]', "model.image.size=8", "model.dim=8", "model.text.word_dim=8", "train.batch_size=100")
needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="measures a GPU's memory")


def settings(*overrides: str) -> TrialSettings:
    return trials_of(expand(load("demo", [*TINY, *overrides])))[-1].settings


OFFLINE = ("objectives=aoq", 'train.ranker="cnn-bow"')


def test_it_trains_on_the_longest_captions_as_they_are() -> None:
    one = settings("model.text.encoder=gru", "model.text.word_drop=0.3")
    inputs = prepare(one, Machine())
    few = longest(inputs, STEPS * 100)
    lengths = inputs.tokens["train"].lengths
    assert few.tokens["train"].lengths.tolist() == lengths.sort(descending=True).values[: STEPS * 100].tolist()
    assert few.tokens["train"].drop is None
    assert len(batches(one, few, 0)) == STEPS
    caption, row = few.pairs.train.captions[7], few.pairs.train.image_of_text[7]
    assert inputs.pairs.train.image_of_text[inputs.pairs.train.captions.index(caption)] == row
    assert few.pairs.val is inputs.pairs.val


def test_objectives_that_read_pairs_outside_the_batch_are_measured_with_them() -> None:
    plain, other = (settings("objectives=infonce", f"seeds=[{seed}]") for seed in (0, 1))
    aoq, again = (settings(*OFFLINE, f"seeds=[{seed}]") for seed in (0, 1))
    meta = settings("objectives=meta-spn")
    assert speed_of(plain) == speed_of(other)
    assert speed_of(aoq) == speed_of(again)
    assert len({speed_of(plain), speed_of(aoq), speed_of(meta)}) == 3
    for one in (aoq, meta):
        assert heaviest_objective(one, torch.device("cpu")) == one.objective
    few = longest(prepare(aoq, Machine()), STEPS * 100)
    (_, batch), *_ = Learner(aoq, with_stand_ins(aoq, few)).begin(0).since(0)
    assert len(batch.images) == len(batch.tokens[0]) == 3 * len(batch.owners) == 300
    assert min(batch.tokens[1]) >= few.tokens["train"].lengths.min()
    (_, batch), *_ = Learner(meta, few).begin(0).since(0)
    assert batch.added is not None
    assert batch.added.meta_batch is not None
    assert len(batch.added.meta_batch.owners) == 100


def test_it_trains_all_that_learns_and_on_all_negatives_if_ever() -> None:
    short = heavy(settings("train.warmup_epochs=2", "train.frozen_epochs=3", "train.ramp_epochs=1", "train.epochs=30"))
    assert (short.train.epochs, short.train.warmup_epochs, short.train.frozen_epochs) == (2, 1, 0)
    assert heavy(settings()).train.epochs == 1


@pytest.mark.parametrize("further", [("model.text.encoder=gru", "train.warmup_epochs=1"), OFFLINE], ids=str)
def test_a_trial_runs_to_its_test_and_leaves_nothing(
    further: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tested, test = list[list[str]](), Trainer.by_protocols
    monkeypatch.setattr(Trainer, "by_protocols", lambda trainer, names: tested.append(names) or test(trainer, names))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    one = heavy(settings(*further))
    train(one, with_stand_ins(one, longest(prepare(one, Machine()), STEPS * 100)))
    assert tested == [protocols_of(one)]
    assert list(tmp_path.glob("goalgrid-*")) == []


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_where_torch_sees_no_gpu_nothing_is_found(tmp_path: Path) -> None:
    found = probe({"a kind": settings().model_dump_json()}, Machine(gpu=True), Home(tmp_path))
    assert (found.devices, found.needs, found.problem) == ([], {}, "")


def test_a_process_of_its_own_raises_here_what_it_raises_there() -> None:
    with pytest.raises(ZeroDivisionError):
        apart(divmod, 1, 0)


@needs_gpu
def test_what_is_measured_on_a_gpu_holds_for_a_trial_and_is_remembered(tmp_path: Path) -> None:
    trial, machine = settings("model.text.encoder=gru"), Machine(gpu=True)
    (need,) = apart(probe, {"a kind": trial}, machine, Home(tmp_path)).needs.values()
    assert gpu_needs.read(Home(tmp_path), "a kind") == {need.device: need}
    assert 0 < need.context < need.total
    inputs = prepare(trial, machine)
    short = heavy(trial)
    assert peak_of(lambda: train(short, inputs)) <= gpu_needs.MARGIN * need.alone


@needs_gpu
def test_a_bound_ends_what_would_take_more_and_is_lifted() -> None:
    _, total = torch.cuda.mem_get_info()
    torch.cuda.set_per_process_memory_fraction(0.01)
    with pytest.raises(torch.OutOfMemoryError):
        torch.empty(int(0.02 * total), dtype=torch.uint8, device="cuda")
    torch.cuda.set_per_process_memory_fraction(1.0)
    assert torch.empty(int(0.02 * total), dtype=torch.uint8, device="cuda").is_cuda
