"""`train.micro_batch` and `train.checkpoint_activations`: less memory, and the whole batch's gradient."""

from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from goalgrid.grid.errors import UserError
from goalgrid.grid.expansion import expand, trials_of
from goalgrid.grid.gridfile import load
from goalgrid.grid.identity import digest
from goalgrid.grid.objectives import OURS, needs
from goalgrid.grid.settings import TrialSettings
from goalgrid.grid.store.home import TrialFolder
from goalgrid.grid.store.speed_probes import speed_of
from goalgrid.runners.gpu.architectures import check_recomputation
from goalgrid.runners.gpu.memory_probe import with_stand_ins
from goalgrid.runners.training.inputs import Batch, prepare
from goalgrid.runners.training.learner import Learner
from goalgrid.runners.training.machine import Machine
from goalgrid.runners.training.trainer import Hooks, Preempted, Trainer
from tests.conftest import SMALL

FEW = ("dataset.train_images=8", "train.batch_size=20", "dataset.max_words=8", "model.dim=16")
PIXELS = ('recipes=["vse-inf-wsl-tiny"]', "model.image.size=32", "model.image.norm_eval=true", "train.frozen_epochs=0")
UNDROPPED = ("model.image.drop=0", "model.text.encoder=gru", "model.text.word_dim=8")
"""No random number is drawn in a step: parts of a batch would draw others than the whole."""


def settings_of(*overrides: str) -> TrialSettings:
    small = [word for word in SMALL if word != "--set"]
    return trials_of(expand(load("demo", [*small, *FEW, *overrides])))[-1].settings


def learner_of(settings: TrialSettings, **train: Any) -> Learner:
    settings = settings.model_copy(update={"train": settings.train.model_copy(update=train)})
    return Learner(settings, with_stand_ins(settings, prepare(settings, Machine())))


def gradient(learner: Learner, epoch: int = 1) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """The gradient of the first batch of an epoch by names of weights, and what the step reports."""
    batch = next(batch for _, batch in learner.begin(epoch).since(0))
    report = learner.gradient(batch, 0.5)
    named = learner.model.named_parameters()
    return {name: weight.grad for name, weight in named if weight.grad is not None}, report


def check_same(settings: TrialSettings, **train: Any) -> None:
    """Check that the gradient and the report are those of the whole batch, to 1e-6 of the bound on its norm."""
    (whole, before), (parts, after) = gradient(learner_of(settings)), gradient(learner_of(settings, **train))
    torch.testing.assert_close(parts, whole, atol=1e-6 * settings.train.clip_norm, rtol=0)
    torch.testing.assert_close(after, before, rtol=1e-4, atol=1e-6, equal_nan=True)


REPRESENTATIVES = ("con_con", "sig-ms_cir", "triplet", "circle", "infonce", "siglip")
"""Of objectives that read the embeddings alone: mined and all pairs, by gradients and by losses, and what learns."""


@pytest.mark.parametrize(
    "objective",
    [pytest.param(name, marks=[pytest.mark.slow] * (not needs(name) and name not in REPRESENTATIVES)) for name in OURS],
)
def test_parts_of_a_batch_have_the_gradient_of_the_whole_by_every_objective(objective: str) -> None:
    ranker = ['train.ranker="vse-inf-wsl-tiny"'] if "offline-negatives" in needs(objective) else []
    check_same(settings_of(*PIXELS, *UNDROPPED, f"objectives={objective}", *ranker), micro_batch=7)


SETS = (*UNDROPPED, "model.image.pooling=none", "model.text.encoder=bigru", "model.text.pooling=none")
MODELS = {
    "sets, few pairs": (
        *PIXELS,
        *SETS,
        "model.scorer.kind=scan",
        "model.scorer.sharpness=9",
        "model.scorer.direction=t2i",
        "objectives=triplet-hn",
    ),
    "sets, all pairs": (
        *PIXELS,
        *SETS,
        "model.scorer.kind=bfan",
        "model.scorer.sharpness=20",
        "model.scorer.focal=equal",
        "objectives=sig-ms_cir",
        "train.mean_loss=true",
    ),
    "twins": (*PIXELS, *UNDROPPED, "model.networks=twins", "objectives=ncr", "train.warmup_epochs=2"),
    "a fusion encoder": ('recipes=["xvlm-tiny"]', "model.image.drop_path=0", "model.text.dropout=0", "objectives=itc"),
}


@pytest.mark.parametrize("overrides", MODELS.values(), ids=MODELS)
def test_parts_of_a_batch_have_the_gradient_of_the_whole_in_every_kind_of_model(overrides: tuple[str, ...]) -> None:
    check_same(settings_of(*overrides), micro_batch=7)


def literal(learner: Learner, batch: Batch, size: int) -> dict[str, Tensor]:
    """GradCache by hand: embed without a graph, the gradient of embeddings, each part again with its random state."""
    model, parts = learner.model, torch.arange(len(batch.images)).split(size)
    states, images, texts = [], [], []
    with torch.no_grad():
        for rows in parts:
            states.append(torch.get_rng_state())
            images.append(model.embed_images(batch.images[rows]))
            texts.append(model.embed_texts(*(part[rows] for part in batch.tokens)))
    after = torch.get_rng_state()
    cached = [torch.cat(vectors).requires_grad_() for vectors in (images, texts)]
    learner.objective(*cached, batch.owners).backward()
    for rows, state in zip(parts, states, strict=True):
        torch.set_rng_state(state)
        again = model.embed_images(batch.images[rows]), model.embed_texts(*(part[rows] for part in batch.tokens))
        torch.autograd.backward(again, [vectors.grad[rows] for vectors in cached])
    torch.set_rng_state(after)
    return {name: weight.grad for name, weight in model.named_parameters() if weight.grad is not None}


def test_parts_draw_their_dropout_once_as_in_gradcache_by_hand() -> None:
    settings = settings_of(*PIXELS, "objectives=sig-ms_cir", "train.clip_norm=1e9")
    gradients = list[dict[str, Tensor]]()
    drawn = []
    for by_hand in (True, False):
        learner = learner_of(settings, micro_batch=6)
        batch = next(batch for _, batch in learner.begin(1).since(0))
        gradients.append(literal(learner, batch, 6) if by_hand else gradient(learner)[0])
        drawn.append(float(torch.rand(())))
    norm = float(torch.stack([value.norm() for value in gradients[0].values()]).norm())
    torch.testing.assert_close(gradients[1], gradients[0], atol=1e-6 * norm, rtol=0)
    assert drawn[0] == drawn[1]
    whole = gradient(learner_of(settings))[0]
    assert max(float((whole[name] - value).abs().max()) for name, value in gradients[0].items()) > 1e-3 * norm


BLOCKS = {
    "ResNet and BERT": PIXELS,
    "ViT": ('recipes=["vsepp-vit-b16-tiny-ft"]', "model.image.size=64"),
    "CLIP": ('recipes=["clip-tiny"]', "model.image.size=64", "model.image.frozen=false", "model.text.frozen=false"),
    "X-VLM": ('recipes=["xvlm-tiny"]', "model.fusion.layers=1"),
}


@pytest.mark.parametrize("overrides", BLOCKS.values(), ids=BLOCKS)
def test_blocks_that_are_computed_again_have_the_same_gradient_to_the_bit(overrides: tuple[str, ...]) -> None:
    """With dropout; and fewer bytes are kept for the backward pass."""
    settings = settings_of(*overrides, "objectives=triplet")
    gradients, kept = list[dict[str, Tensor]](), list[int]()
    for again in (False, True):
        learner, sizes = learner_of(settings, checkpoint_activations=again), dict[int, int]()

        def keep(tensor: Tensor, sizes: dict[int, int] = sizes) -> Tensor:
            sizes[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
            gradients.append(gradient(learner)[0])
        kept.append(sum(sizes.values()))
    assert gradients[0].keys() == gradients[1].keys()
    assert kept[1] < 0.7 * kept[0]
    assert all(value.equal(gradients[1][name]) for name, value in gradients[0].items())


@pytest.mark.parametrize("setting", ["train.micro_batch=8", "train.checkpoint_activations=true"])
def test_batch_norms_that_learn_refuse_both(setting: str) -> None:
    name = setting.partition("=")[0]
    settings = settings_of('recipes=["vse-inf-wsl-tiny"]', setting)
    with pytest.raises(
        UserError, match=rf"{name} with vse-inf-wsl-tiny: batch norms of its model \(\d+\) must see.*norm_eval"
    ):
        check_recomputation([settings])
    with pytest.raises(UserError, match="once per step"):
        learner_of(settings)
    check_recomputation([settings_of(*PIXELS, setting)])


def test_every_recipe_that_is_refused_is_named_with_advice_that_fits_it() -> None:
    trials = trials_of(expand(load("goal-table6", ["train.micro_batch=4", "seeds=[0]"])))
    with pytest.raises(UserError) as refused:
        check_recomputation(trial.settings for trial in trials)
    problems = str(refused.value).splitlines()
    refused_names = [line.partition(" with ")[2].partition(":")[0] for line in problems[:-1]]
    assert refused_names == ["vsrn-coco", "vsrn-again-coco", "vse-inf-butd", "vsrn", "vsrn-again"], (
        "no ensemble, which trains nothing"
    )
    assert "norm_eval" not in str(refused.value)
    assert problems[-1] == "Use [[where]] to set it only for other recipes."


def test_what_saves_memory_is_no_identity_but_of_another_need_and_speed() -> None:
    plain, *saving = (settings_of(*words) for words in ((), ("train.micro_batch=8",), (
        "train.checkpoint_activations=true",)))  # fmt: skip
    assert all(digest(settings) == digest(plain) for settings in saving)
    assert len({speed_of(settings) for settings in (plain, *saving)}) == 3
    assert '"micro_batch":8' in saving[0].model_dump_json()


def test_a_trial_in_parts_resumes_to_the_bit(tmp_path: Path) -> None:
    settings = settings_of(*PIXELS, "train.micro_batch=6", "train.epochs=2", "objectives=sig-ms_cir")
    inputs, weights = prepare(settings, Machine()), list[dict[str, Tensor]]()
    for name, cut in (("whole", None), ("cut", 1), ("cut", None)):
        folder = TrialFolder(tmp_path / name)
        folder.path.mkdir(exist_ok=True)
        trainer = Trainer(settings, inputs, folder, hooks=Hooks(beat=lambda step, cut=cut: step == cut))
        with suppress(Preempted):
            trainer.fit()
        weights.append(trainer.model.weights())
    assert trainer.progress.step == 4
    assert all(value.equal(weights[2][name]) for name, value in weights[0].items())
