"""Training with a fusion encoder: its loss beside the objective's, its optimiser, and what cannot be split."""

import re
from pathlib import Path

import pytest
import torch

from goalgrid.grid.resources import Resources
from goalgrid.grid.settings import components
from goalgrid.runners.training.learner import Learner
from goalgrid.runners.training.machine import Machine
from goalgrid.runners.training.optimizers import linear_rate
from tests.runners.training.test_trainer import settings_of, trainer_in


@pytest.fixture(scope="module")
def learner(tmp_path_factory: pytest.TempPathFactory, few_pictures: Path) -> Learner:
    """xvlm-tiny on a few photographs, without dropout."""
    still = "model.text.dropout=0", "model.image.drop_path=0", "train.batch_size=20", "train.epochs=2"
    few = 'recipes=["xvlm-tiny"]', f'data.few.root="{few_pictures}"', 'datasets=["few"]', "dataset.train_images=40"
    machine = Machine(roots=(("few", str(few_pictures)),))
    return trainer_in(tmp_path_factory.mktemp("fusion"), settings_of(*few, *still), machine=machine).learner


def test_the_loss_is_the_objectives_mean_and_the_matching(learner: Learner) -> None:
    (_, batch) = next(learner.begin(0).since(0))
    measured = learner.gradient(batch, 0.5)
    with torch.no_grad():
        vectors = learner.model.embed_images(batch.images), learner.model.embed_texts(*batch.tokens)
        mean = learner.objective(*vectors, batch.owners) / len(batch.owners)  # type: ignore[arg-type]
    assert float(measured["loss"]) == pytest.approx(float(mean + measured["matching"]), rel=1e-5)
    assert measured["matching"] > 0.3
    assert measured["grad_norm_fusion"] > 0


def test_the_rate_rises_and_falls_step_by_step_and_norms_have_no_decay(learner: Learner) -> None:
    train = learner.settings.train
    epoch, steps = learner.begin(1), 10
    assert len(epoch) == steps
    learner.gradient(next(epoch.since(7))[1], 7 / steps)
    assert {group["lr"] for group in learner.optimizer.param_groups} == {linear_rate(train, 1, 7, steps)}
    assert learner.lr == train.lr * (20 - 17) / (20 - 2)
    decay = {weight: group["weight_decay"] for group in learner.optimizer.param_groups for weight in group["params"]}
    names = dict(learner.model.named_parameters())
    assert len(decay) == len(names)
    for name in (
        "image.backbone.layers.0.blocks.0.attn.relative_position_bias_table", "image.backbone.norm.weight",
        "image.backbone.layers.1.blocks.1.norm2.weight", "text.backbone.embeddings.LayerNorm.weight",
        "fusion.head.1.bias",
    ):  # fmt: skip
        assert decay[names[name]] == 0, name
    for name in ("fusion.head.1.weight", "image.project.weight", "text.backbone.embeddings.word_embeddings.weight"):
        assert decay[names[name]] == train.weight_decay == 0.01, name
    assert {group["betas"] for group in learner.optimizer.param_groups} == {(0.9, 0.98)}


def test_replicas_are_refused(learner: Learner) -> None:
    clash = components.clash(learner.settings.model, others=Resources(replicas=2).components)
    assert re.match(r"fusion x-vlm needs negatives of a whole batch .*, which resources\.replicas = 2", clash)
