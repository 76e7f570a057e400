"""What an epoch changes in a training: which weights learn, on which negatives, at which rate and size of the loss."""

import copy
import random
from dataclasses import replace

import numpy as np
import pytest
import torch

from goalgrid.grid.expansion import expand, trials_of
from goalgrid.grid.gridfile import load
from goalgrid.grid.resources import Resources
from goalgrid.grid.settings import TrialSettings
from goalgrid.objectives import build
from goalgrid.runners.training import checkpoints
from goalgrid.runners.training.inputs import Batch, prepare
from goalgrid.runners.training.learner import Learner, model_of
from goalgrid.runners.training.machine import Machine
from tests.conftest import SMALL

FEW = ("dataset.train_images=8", "train.batch_size=20", "dataset.max_words=8")
"""Two batches an epoch."""


def settings_of(*overrides: str) -> TrialSettings:
    small = [word for word in SMALL if word != "--set"]
    return trials_of(expand(load("demo", [*small, *FEW, *overrides])))[0].settings


def first_batch(learner: Learner, epoch: int) -> Batch:
    return next(batch for _, batch in learner.begin(epoch).since(0))


def test_the_backbone_is_still_in_exactly_the_frozen_epochs_while_heads_learn() -> None:
    settings = settings_of(
        'recipes=["vse-inf-wsl-tiny"]', "model.image.size=32", "model.dim=8", "train.frozen_epochs=2",
        "train.ramp_epochs=0", "train.epochs=4",
    )  # fmt: skip
    learner = Learner(settings, prepare(settings, Machine()))
    moved = []
    for epoch in range(4):
        batch = first_batch(learner, epoch)
        before = {name: weight.detach().clone() for name, weight in learner.model.named_parameters()}
        learner.gradient(batch, 0.5)
        learner.optimizer.step()
        after = dict(learner.model.named_parameters())
        changed = {name for name, weight in before.items() if not weight.equal(after[name])}
        assert "image.project.weight" in changed
        moved.append(any(name.startswith("image.backbone") for name in changed))
    assert moved == [False, False, True, True]


def test_layout_and_algorithms_of_convolutions_change_no_number_on_a_cpu_and_only_the_last_digits_elsewhere() -> None:
    settings = settings_of(
        'recipes=["vse-inf-wsl-tiny"]', "model.image.size=32", "model.dim=8", "train.frozen_epochs=0"
    )
    machine, measured = Machine(Resources(channels_last=True, cudnn_benchmark=True)), list[dict[str, torch.Tensor]]()
    there = replace(prepare(settings, machine), layout=torch.channels_last)  # as on a GPU
    for inputs in (prepare(settings, Machine()), prepare(settings, machine), there):
        learner = Learner(settings, inputs)
        torch.manual_seed(0)
        measured.append(learner.gradient(first_batch(learner, 0), 0.5))
    plain, on_cpu, on_gpu = ([float(one[name]) for name in ("loss", "grad_norm")] for one in measured)
    assert plain == on_cpu
    assert on_gpu == pytest.approx(plain, rel=1e-3)
    kernels = [weight for weight in learner.model.parameters() if weight.ndim == 4 and min(weight.shape[1:3]) > 1]
    assert kernels
    assert all(weight.is_contiguous(memory_format=torch.channels_last) for weight in kernels)


def test_all_negatives_count_in_exactly_the_warm_up_epochs() -> None:
    settings = settings_of("train.warmup_epochs=2", "train.epochs=4", "objectives=triplet-hn")
    learner = Learner(settings, prepare(settings, Machine()))
    values = dict(settings.objective.parameters)
    every, hardest = (build("triplet-hn", **{**values, "mining": mining}) for mining in ("all", "hardest"))
    for epoch, expected in enumerate((every, every, hardest, hardest)):
        batch = first_batch(learner, epoch)
        with torch.no_grad():
            image, text = learner.model.embed_images(batch.images), learner.model.embed_texts(*batch.tokens)
        value = expected(image, text, batch.owners)
        assert float(every(image, text, batch.owners)) > 1.5 * float(hardest(image, text, batch.owners))
        torch.testing.assert_close(learner.gradient(batch, 0.5)["loss"], value)


@pytest.mark.parametrize(("mean_loss", "size"), [(False, 1.0), (True, 1 / 20)])
def test_the_loss_has_its_published_size_and_that_of_the_ramp(mean_loss: bool, size: float) -> None:
    settings = settings_of(
        "train.frozen_epochs=1", "train.ramp_epochs=2", "train.epochs=4", f"train.mean_loss={str(mean_loss).lower()}"
    )
    learner = Learner(settings, prepare(settings, Machine()))
    for epoch, passed, factor in ((0, 0.5, 1.0), (1, 0.0, 0.0), (1, 0.5, 0.25), (2, 0.5, 0.75), (3, 0.0, 1.0)):
        batch = first_batch(learner, epoch)
        with torch.no_grad():
            image, text = learner.model.embed_images(batch.images), learner.model.embed_texts(*batch.tokens)
        whole = learner.objective(image, text, batch.owners)
        learner.objective.reduction = "sum"
        torch.testing.assert_close(learner.gradient(batch, passed)["loss"], factor * size * whole)


def test_every_group_of_weights_follows_the_schedule_by_its_factor() -> None:
    """Steps: a tenth after every two epochs. Linear: step by step, up in the first quarter, then down."""
    backbones = ('recipes=["vse-inf-wsl-tiny"]', "model.image.size=32", "model.dim=8", "train.lr=0.01")
    factors = ("train.image_lr_factor=0.1", "train.text_lr_factor=0.5", "train.epochs=4", "train.ramp_epochs=0")
    stepped = settings_of(*backbones, *factors, "train.decay_every=2", "train.decay_factor=0.1")
    inputs = prepare(stepped, Machine())
    learner = Learner(stepped, inputs)

    def rates() -> dict[str, float]:
        """The rate of each weight by the part of the model that it is of."""
        kinds = {id(weight): kind for kind, members in learner.model.groups().items() for weight in members}
        groups = learner.optimizer.param_groups
        return {kinds[id(weight)]: group["lr"] for group in groups for weight in group["params"]}

    for epoch, lr in enumerate((0.01, 0.01, 0.001, 0.001)):
        learner.begin(epoch)
        assert rates() == pytest.approx({"heads": lr, "image": 0.1 * lr, "text": 0.5 * lr})
    linear = stepped.train.model_copy(update={"schedule": "linear", "rise_share": 0.25})
    learner = Learner(stepped.model_copy(update={"train": linear}), inputs)
    found = []
    for epoch in range(4):
        batch = first_batch(learner, epoch)
        for passed in (0.0, 0.5):  # two batches an epoch
            learner.gradient(batch, passed)
            found.append(rates()["heads"])
            assert rates() == pytest.approx({"heads": found[-1], "image": 0.1 * found[-1], "text": 0.5 * found[-1]})
    assert found == pytest.approx([0.01 * share for share in (0, 1 / 2, 1, 5 / 6, 4 / 6, 3 / 6, 2 / 6, 1 / 6)])


def test_a_learner_draws_from_its_own_seed_whatever_was_drawn_before() -> None:
    """Dropout, and what parts of a user's own draw by Python's and NumPy's generators."""
    settings = settings_of("model.text.encoder=gru", "model.text.dropout=0.5", "model.text.word_dim=8")
    inputs, losses, others = prepare(settings, Machine()), [], []
    for before in (0, 100):
        torch.rand(before), np.random.random(before), random.random()
        learner = Learner(settings, inputs)
        losses.append(float(learner.gradient(first_batch(learner, 0), 0.0)["loss"]))
        others.append((random.random(), np.random.random()))
    assert others[0] == others[1]
    other = Learner(settings.model_copy(update={"seed": settings.seed + 1}), inputs)
    other.model.load_weights(learner.model.weights())
    losses.append(float(other.gradient(first_batch(learner, 0), 0.0)["loss"]))
    assert losses[0] == losses[1]
    assert losses[0] != losses[2]


def test_restored_generators_draw_what_they_would_have_drawn() -> None:
    cpu = torch.device("cpu")
    checkpoints.seed_all(7, cpu)
    states = checkpoints.random_states(cpu)

    def draws() -> list[float]:
        return [random.random(), float(np.random.random()), float(torch.rand(()))]

    first = draws()
    draws()
    checkpoints.restore_random_states(states, cpu)
    assert draws() == first


def test_bf16_rounds_what_encoders_give_and_the_objective_computes_in_fp32() -> None:
    losses = {}
    for precision in ("fp32", "bf16"):
        settings = settings_of(f"train.precision={precision}")
        learner = Learner(settings, prepare(settings, Machine()))
        loss = learner.gradient(first_batch(learner, 0), 0.0)["loss"]
        assert loss.dtype == torch.float32
        losses[precision] = float(loss)
    assert losses["bf16"] != losses["fp32"]
    assert losses["bf16"] == pytest.approx(losses["fp32"], rel=0.05)


@pytest.mark.parametrize("tf32", [True, False])
def test_an_epoch_computes_in_tf32_where_the_recipe_says_so(tf32: bool) -> None:
    settings = settings_of(f"train.tf32={str(tf32).lower()}")
    learner = Learner(settings, prepare(settings, Machine()))
    backends = torch.backends.cuda.matmul, torch.backends.cudnn
    try:
        for backend in backends:
            backend.allow_tf32 = not tf32
        learner.begin(0)
        assert [backend.allow_tf32 for backend in backends] == [tf32, tf32]
    finally:
        for backend in backends:
            backend.allow_tf32 = False


def test_learnt_weights_of_pairs_go_on_from_a_state_as_if_nothing_had_happened() -> None:
    settings = settings_of("objectives=meta-spn", "dataset.val_images=20")
    inputs = prepare(settings, Machine())
    whole, resumed = Learner(settings, inputs), Learner(settings, inputs)

    def trained(learner: Learner, epoch: int) -> list[float]:
        """Losses of an epoch."""
        batches, losses = learner.begin(epoch), []
        for place, batch in batches.since(0):
            losses.append(float(learner.gradient(batch, place / len(batches))["loss"]))
            learner.optimizer.step()
        return losses

    trained(whole, 0)
    resumed.load(copy.deepcopy(whole.state()))
    assert trained(whole, 1) == trained(resumed, 1)
    own, again = (learner.learnt()["weights"] for learner in (whole, resumed))
    assert all(value.equal(again[name]) for name, value in own.items())
    again = Learner(settings, inputs).learnt()["weights"]
    assert not all(value.equal(again[name]) for name, value in own.items())


def test_both_of_twins_start_from_those_of_the_parent() -> None:
    settings = settings_of("model.networks=twins", "objectives=ncr")
    inputs = prepare(settings, Machine())
    parent, child = (model_of(settings.model_copy(update={"seed": seed}), inputs) for seed in (0, 1))
    wanted = parent.weights()
    assert not all(value.equal(wanted[name]) for name, value in child.weights().items())
    child.start_from(wanted)
    assert all(value.equal(wanted[name]) for name, value in child.weights().items())
