"""Gradients on the unit sphere against autograd through the normalisation, anchor by anchor."""

from pathlib import Path

import pytest
import torch
from torch.nn.functional import normalize

from goalgrid.grid.errors import UserError
from goalgrid.grid.expansion import expand, trials_of
from goalgrid.grid.gridfile import load
from goalgrid.grid.objectives import OURS
from goalgrid.grid.store.home import TrialFolder
from goalgrid.objectives import build, mining
from goalgrid.objectives.objective import ScoresObjective
from goalgrid.objectives.triplets import BatchPairs
from goalgrid.runners.training.inputs import prepare
from goalgrid.runners.training.machine import Machine
from goalgrid.runners.training.progress import best_of
from goalgrid.runners.training.trainer import Trainer
from goalgrid.runners.trial.loaded_model import LoadedModel
from goalgrid.runners.trial.sphere_gradients import mean_gradients, on_sphere
from tests.cases import every
from tests.conftest import SMALL


@every("name", OURS)
def test_tangents_equal_autograd_through_the_normalisation(name: str) -> None:
    generator = torch.Generator().manual_seed(2)
    free = [torch.randn(5, 4, generator=generator, dtype=torch.float64) for _ in "xy"]
    free[1] = 0.7 * free[0] + 0.6 * free[1]
    objective = build(name)
    found = on_sphere(objective, *(normalize(vectors) for vectors in free))
    for anchor in range(10):
        direction, row = divmod(anchor, 5)
        image, text = (vectors.clone().requires_grad_() for vectors in free)
        sim = normalize(image) @ normalize(text).T
        triplets = mining.candidates(sim, BatchPairs(5), objective.relative, objective.k)[direction]
        objective.loss(triplets)[row].sum().backward()
        own, others = (image, text) if direction == 0 else (text, image)
        assert own.grad is not None
        assert others.grad is not None
        at_own, at_others = (v.grad.norm(dim=1) * v.detach().norm(dim=1) for v in (own, others))
        assert found.anchor[anchor].item() == pytest.approx(at_own[row].item(), abs=1e-9)
        assert found.positive[anchor].item() == pytest.approx(at_others[row].item(), abs=1e-9)
        at_others[row] = 0
        assert found.negatives[anchor].item() == pytest.approx(at_others.norm().item(), abs=1e-9)


def test_tangents_of_a_loss_of_scores_are_those_of_the_batch() -> None:
    """At its anchors, against autograd through the normalisation; the others through the scores of an anchor alone."""
    generator = torch.Generator().manual_seed(2)
    free = [torch.randn(5, 4, generator=generator, dtype=torch.float64) for _ in "xy"]
    objective = ScoresObjective(lambda scores: -scores.log_softmax(1).diagonal().mean(), ("mine", len))
    found = on_sphere(objective, *(normalize(vectors) for vectors in free))
    image, text = (vectors.clone().requires_grad_() for vectors in free)
    sim = normalize(image) @ normalize(text).T
    objective.of_scores(sim).backward()
    norms = [v.grad.norm(dim=1) * v.detach().norm(dim=1) for v in (image, text) if v.grad is not None]
    assert found.anchor.tolist() == pytest.approx(torch.cat(norms).tolist(), abs=1e-9)
    scores = sim.detach().requires_grad_()
    objective.of_scores(scores).backward()
    assert scores.grad is not None
    pushes = scores.grad.abs() * (1 - scores.detach().square()).sqrt()
    assert found.positive.tolist() == pytest.approx([*pushes.diagonal().tolist()] * 2)
    assert found.negatives[0].item() == pytest.approx(pushes[0, 1:].norm().item())


def test_a_small_delta_s_alone_does_not_make_the_gradient_vanish_and_near_equal_texts_do() -> None:
    """Unified Eq. (11) holds for unit vectors; SelHN Eq. (8) has the cosine where the sine belongs."""
    image = torch.eye(3, dtype=torch.float64)[:2]
    beside = torch.tensor([[0.05, 0.998, 0.0], [0.05, -0.998, 0.0]], dtype=torch.float64)
    near = torch.tensor([[0.05, 0.998, 0.0], [0.05, 0.998, 1e-6]], dtype=torch.float64)
    anchor, same = (on_sphere(build("triplet-hn"), image, normalize(text)) for text in (beside, near))
    assert (anchor.delta_s[0].item(), anchor.selhn[0].item()) == pytest.approx((0, 0), abs=1e-12)
    assert anchor.anchor[0].item() == pytest.approx(1.997, abs=1e-3)
    assert same.anchor[0].item() == pytest.approx(0, abs=1e-5)
    assert same.positive[0].item() == pytest.approx(1, abs=0.01)
    assert same.cosine[0].item() == pytest.approx(-1)


@pytest.mark.parametrize("name", ["siglip", "itc", "meta-spn"])
def test_the_gradient_has_the_values_that_the_objective_learnt(name: str, tmp_path: Path) -> None:
    """A checkpoint without them is refused: the first values would give other numbers than the trial had."""
    small = [
        *(word for word in SMALL if word != "--set"),
        "train.epochs=1",
        "train.batch_size=1000",
        "model.image.channels=8",
    ]
    settings = trials_of(expand(load("demo", [*small, f'objectives=["{name}"]'])))[0].settings
    inputs = prepare(settings, Machine())
    trainer = Trainer(settings, inputs, TrialFolder(tmp_path))
    first = {part: {key: value.clone() for key, value in own.items()} for part, own in trainer.learner.learnt().items()}
    trainer.fit()
    kept, now = best_of(TrialFolder(tmp_path), inputs.device), trainer.learner.learnt()
    assert now
    for part, own in now.items():
        assert all(value.equal(kept[part][key]) for key, value in own.items())
    found, before = (mean_gradients(LoadedModel(trainer.model, settings, inputs, learnt)) for learnt in (now, first))
    assert found["delta_s"] == before["delta_s"]
    assert found["anchor"] != before["anchor"]
    with pytest.raises(
        UserError, match=f"objective '{name}' has learnt values .* best.ckpt does not contain, since an older version"
    ):
        mean_gradients(LoadedModel(trainer.model, settings, inputs))
