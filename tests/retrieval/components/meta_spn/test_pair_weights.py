"""Learnt weights of pairs: finite differences against a second backward pass, and halves of the validation split."""

from functools import partial

import pytest
import torch
from torch import Tensor, nn

from goalgrid import objectives
from goalgrid.grid.expansion import expand, trials_of
from goalgrid.grid.gridfile import load
from goalgrid.grid.settings import TrialSettings
from goalgrid.grid.settings.image_views import View
from goalgrid.objectives.triplets import Triplets
from goalgrid.retrieval.components.meta_spn.pair_weights import LearntWeights
from goalgrid.retrieval.data import shapes
from goalgrid.retrieval.splits.pairs import DataError
from goalgrid.runners.training.embedding import embedded
from goalgrid.runners.training.inputs import prepare
from goalgrid.runners.training.learner import Learner
from goalgrid.runners.training.machine import Machine
from goalgrid.runners.training.training_methods import selecting
from tests.conftest import SMALL

CPU = torch.device("cpu")
PICTURES = View(32)


def settings_of(*words: str) -> TrialSettings:
    small = [word for word in SMALL if word != "--set"]
    return trials_of(expand(load("demo", [*small, 'objectives=["meta-spn"]', *words])))[0].settings


def unit(image: Tensor, text: Tensor, weights: list[Tensor]) -> Tensor:
    """Similarities of images by texts under two linear maps."""
    normalize = nn.functional.normalize
    return normalize(image @ weights[0].T, dim=1) @ normalize(text @ weights[1].T, dim=1).T


def literal(sim: Tensor, weigh: LearntWeights | None) -> Tensor:
    """Loss of the hardest triplets, one by one; a hinge where nothing is weighed."""
    total = sim.new_zeros(())
    for scores in (sim, sim.T):
        for i in range(len(sim)):
            s_pos, s_neg = scores[i, i], torch.stack([scores[i, j] for j in range(len(sim)) if j != i]).max()
            if float((s_neg - s_pos).detach()) + 0.2 <= 0:
                continue
            if weigh is None:
                total = total + s_neg - s_pos + 0.2
                continue
            own, other = s_pos.detach(), s_neg.detach()
            positive = weigh.network.positive(torch.stack([own, own - other]))[0]
            negative = weigh.network.negative(torch.stack([other, other - own]))[0]
            total = total + negative * s_neg - positive * s_pos
    return total / len(sim)


def test_finite_differences_equal_a_second_backward_pass() -> None:
    torch.manual_seed(0)
    weights = LearntWeights(settings_of(), shapes.load(PICTURES), CPU)
    weights.network.double()
    model = nn.ParameterList([torch.randn(4, size, dtype=torch.float64) for size in (6, 5)])
    theta = list(model)
    before = [weight.detach().clone() for weight in theta]
    batch, meta = ([torch.randn(8, size, dtype=torch.float64) for size in (6, 5)] for _ in range(2))
    own, lr = list(weights.network.parameters()), 0.05
    step = torch.autograd.grad(literal(unit(*batch, theta), weights), theta, create_graph=True)
    ahead = [weight - lr * part for weight, part in zip(theta, step, strict=True)]
    exact = torch.autograd.grad(literal(unit(*meta, ahead), None), own)

    objective, plain = objectives.build("meta-spn"), objectives.build("triplet-hn")
    objective.loss = partial(objective.loss, weigh=weights.weigh)
    weights.learn(
        model,
        lr,
        lambda: objective.from_similarity(unit(*batch, theta)) / 8,
        lambda: plain.from_similarity(unit(*meta, theta)) / 8,
    )
    assert all(map(torch.equal, theta, before))
    assert max(float(part.abs().max()) for part in exact) > 1e-6
    for weight, part in zip(own, exact, strict=True):
        torch.testing.assert_close(weight.grad, part, rtol=1e-3, atol=1e-3 * float(part.abs().max()))


def test_the_networks_and_their_optimizer_are_meta_weight_nets() -> None:
    """100 hidden units; Adam with 1e-3 and a decay of 1e-4."""
    weights = LearntWeights(settings_of(), shapes.load(PICTURES), CPU)
    assert weights.margin == 0.2
    for network in (weights.network.positive, weights.network.negative):
        assert [layer.weight.shape for layer in network if isinstance(layer, nn.Linear)] == [(100, 2), (1, 100)]
    (group,) = weights.optimizer.param_groups
    assert (type(weights.optimizer), group["lr"], group["weight_decay"]) == (torch.optim.Adam, 1e-3, 1e-4)
    first, second = (
        LearntWeights(settings_of(f"seeds=[{seed}]"), shapes.load(PICTURES), CPU).network.state_dict()
        for seed in (0, 1)
    )
    assert not first["positive.0.weight"].equal(second["positive.0.weight"])
    assert not first["positive.0.weight"].equal(first["negative.0.weight"])


def test_half_of_the_validation_images_select_and_the_others_teach_weights() -> None:
    settings = settings_of("train.batch_size=50", "dataset.val_images=100")
    inputs = prepare(settings, Machine())
    learner = Learner(settings, inputs)
    assert selecting(settings, inputs.pairs) == 50
    assert len(embedded(learner.model, settings, inputs, "val")[0]) == 50
    _, batch = next(learner.begin(0).since(0))
    assert batch.added is not None
    meta = batch.added.meta_batch
    assert meta is not None
    assert len(meta.owners) == 50
    assert set(meta.owners.tolist()) <= set(range(50, 100))
    of_validation = inputs.pairs.val.images.gather(meta.owners.numpy())
    assert meta.images.equal(of_validation)
    assert not meta.images.equal(inputs.pairs.train.images.gather(meta.owners.numpy()))
    (method,) = learner.methods
    assert isinstance(method, LearntWeights)
    weights, model = ({name: one.clone() for name, one in module.state_dict().items()} for module in (
        method.network, learner.model))  # fmt: skip
    method.before_step(learner.model, learner.lr, batch, learner._mean_loss)
    assert any(not one.equal(weights[name]) for name, one in method.network.state_dict().items())
    assert all(one.equal(model[name]) for name, one in learner.model.state_dict().items())


def test_validation_images_beyond_the_margin_teach_nothing() -> None:
    settings = settings_of("train.batch_size=50", "dataset.val_images=100")
    learner = Learner(settings, prepare(settings, Machine()))
    _, batch = next(learner.begin(0).since(0))
    (method,) = learner.methods
    assert isinstance(method, LearntWeights)
    for margin, teaches in ((0.2, True), (-5.0, False)):
        method.margin = margin
        method.before_step(learner.model, learner.lr, batch, learner._mean_loss)
        assert any(weight.grad.any() for weight in method.network.parameters()) == teaches


def test_weights_are_given_in_the_precision_that_is_asked_for() -> None:
    """The densities of a trial with `train.trace_every` ask in float64."""
    weights = LearntWeights(settings_of(), shapes.load(PICTURES), CPU)
    for kind in (torch.float32, torch.float64):
        s_pos, s_neg = torch.rand(2, 5, 1, dtype=kind)
        assert {weight.dtype for weight in weights.weigh(Triplets(s_pos, s_neg))} == {kind}


def test_a_single_validation_image_cannot_be_halved() -> None:
    with pytest.raises(DataError, match=r"there is only 1 image\. Raise dataset\.val_images"):
        LearntWeights(settings_of("dataset.val_images=1"), shapes.load(PICTURES), CPU)
