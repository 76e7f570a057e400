"""VSRN equals its formulas in loops: the image encoder, the captioning loss, and a whole step of training."""

from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from goalgrid.grid.errors import UserError
from goalgrid.grid.resources import Resources
from goalgrid.grid.settings import components
from goalgrid.grid.settings.model import ModelSettings
from goalgrid.objectives import build
from goalgrid.retrieval.components.vsrn import CaptioningSettings, RegionGraphSettings
from goalgrid.retrieval.components.vsrn.network import Captioner, RegionGraph
from goalgrid.retrieval.model import DualEncoder, class_of
from goalgrid.runners.training.inputs import prepare
from goalgrid.runners.training.learner import Learner
from tests.retrieval.components.vsrn import literal
from tests.runners.training.test_sets import machine_of, settings_of

DIM, WIDTH, REGIONS, IMAGES, WORDS = 6, 5, 4, 3, 11
CAPTIONS = [[2, 5, 6, 3], [2, 7, 8, 9, 10, 4, 3], [2, 1, 3]]
MODEL = {
    "dim": DIM,
    "image": {"encoder": "region-graph"},
    "text": {"encoder": "gru", "word_dim": 4, "boundaries": True},
    "fusion": {"kind": "captioning", "hidden": 3, "word_dim": 4, "max_words": 6, "dropout": 0.0},
}


EXACT: dict[str, Any] = {"rtol": 0, "atol": 1e-10}


def stirred(module: nn.Module) -> Any:
    """The network in float64, with weights that are nowhere 0."""
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for weight in module.double().parameters():
            weight.copy_(torch.randn(weight.shape, generator=generator, dtype=torch.float64) / 2)
    return module


def random(*shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)


def encoder_of(norm: str) -> Any:
    settings = RegionGraphSettings.model_validate({"encoder": "region-graph", "norm": norm})
    return stirred(RegionGraph(settings, (REGIONS, WIDTH), DIM, {}))


def padded(captions: list[list[int]]) -> tuple[Tensor, Tensor]:
    rows = [torch.tensor(caption) for caption in captions]
    return nn.utils.rnn.pad_sequence(rows, batch_first=True), torch.tensor([len(row) for row in rows])


@pytest.mark.parametrize("norm", ["regions", "batch"])
def test_an_image_equals_the_loops_over_its_regions(norm: str) -> None:
    encoder, features = encoder_of(norm), random(IMAGES, REGIONS, WIDTH)
    expected = literal.regions(encoder, features)
    torch.testing.assert_close(encoder.regions(features), torch.stack([torch.stack(i) for i in expected]), **EXACT)
    torch.testing.assert_close(encoder(features), torch.stack(literal.summaries(encoder, expected)), **EXACT)


def test_a_region_keeps_its_length_in_the_code_of_vsrn() -> None:
    """Lengths are 1 over the regions, dimension by dimension, and those of single regions are not."""
    regions = encoder_of("regions").regions(random(IMAGES, REGIONS, WIDTH))
    torch.testing.assert_close(regions.norm(dim=1), torch.ones(IMAGES, DIM, dtype=torch.float64), **EXACT)
    assert (regions.norm(dim=2) - 1).abs().min() > 1e-3


def test_at_first_the_graph_leaves_the_regions_as_they_are() -> None:
    torch.manual_seed(0)
    encoder = RegionGraph(RegionGraphSettings(encoder="region-graph"), (REGIONS, WIDTH), DIM, {})
    values = nn.functional.normalize(encoder.project(random(IMAGES, REGIONS, WIDTH).float()), dim=1)
    torch.testing.assert_close(encoder.regions(random(IMAGES, REGIONS, WIDTH)), nn.functional.normalize(values, dim=1))


@pytest.mark.parametrize("max_words", [3, 6, 7, 8, 20])
def test_the_captioning_loss_equals_the_loops_over_words(max_words: int) -> None:
    """Longer captions are cut, and the padding after `<end>` counts as a word, as in VSRN's code."""
    settings = CaptioningSettings.model_validate({**MODEL["fusion"], "max_words": max_words})  # type: ignore[dict-item]
    captioner, regions = stirred(Captioner(settings, DIM, WORDS)), random(IMAGES, REGIONS, DIM)
    pairs = zip(regions, CAPTIONS, strict=True)
    expected = sum(literal.captioning(captioner, list(image), words, max_words) for image, words in pairs) / IMAGES
    torch.testing.assert_close(captioner(regions, *padded(CAPTIONS)), expected, **EXACT)


THIN = (
    "train.batch_size=5", "model.dim=6", "model.text.word_dim=5", "model.fusion.hidden=4", "model.fusion.word_dim=5",
    "model.fusion.dropout=0", "model.fusion.max_words=12", "objectives=triplet-hn",
)  # fmt: skip


def learner_of(few_pictures: Path, *overrides: str) -> Learner:
    settings = settings_of(few_pictures, "vsrn-tiny", *THIN, *overrides)
    return Learner(settings, prepare(settings, machine_of(few_pictures)))


@pytest.mark.parametrize("norm", ["regions", "batch"])
def test_a_step_of_training_equals_the_literal_one(norm: str, few_pictures: Path) -> None:
    """The sum of hinges and the captioning loss, its gradient clipped at 2, and Adam's first step."""
    learner = learner_of(few_pictures, f"model.image.norm={norm}")
    model: Any = stirred(learner.model)
    other, (_, batch) = deepcopy(model), next(learner.begin(0).since(0))
    measured = learner.gradient(batch, 0.0)
    learner.optimizer.step()

    ids, lengths = batch.tokens
    captions = [row[:length].tolist() for row, length in zip(ids, lengths.tolist(), strict=True)]
    loss, captioning = literal.loss(other, batch.images.double(), captions, 12)
    loss.backward()
    torch.testing.assert_close(measured["loss"], loss.detach(), **EXACT)
    torch.testing.assert_close(measured["captioning"], captioning.detach(), **EXACT)
    weights = dict(other.named_parameters())
    whole = sum((weight.grad**2).sum() for weight in weights.values()).sqrt()  # type: ignore[union-attr]
    torch.testing.assert_close(measured["grad_norm"], whole, **EXACT)
    assert whole > 2
    for name, weight in model.named_parameters():
        gradient = weights[name].grad * 2 / (whole + 1e-6)
        torch.testing.assert_close(weight.grad, gradient, **EXACT, msg=name)
        stepped = weights[name].detach() - learner.lr * gradient / (gradient.abs() + 1e-8)
        torch.testing.assert_close(weight.detach(), stepped, **EXACT, msg=name)


@pytest.mark.parametrize(
    ("overrides", "divisor"),
    [(("objectives=sig-ms_cir",), 1), (("objectives=itc",), 5), (("train.mean_loss=true",), 5)],
    ids=["a sum", "a mean", "a sum, divided"],
)
def test_the_captioning_loss_has_the_same_weight_beside_any_objective(
    overrides: tuple[str, ...], divisor: int, few_pictures: Path
) -> None:
    learner = learner_of(few_pictures, *overrides)
    (_, batch) = next(learner.begin(0).since(0))
    measured = learner.gradient(batch, 0.5)
    vectors = learner.model.embed_batch(*batch.on(learner.inputs.device)[:1], *batch.tokens)[:2]
    objective = learner.objective(*vectors, batch.on(learner.inputs.device)[2])
    alone = objective / len(batch.owners) if learner.settings.train.mean_loss else objective
    torch.testing.assert_close(measured["loss"], (alone + measured["captioning"] / divisor).detach())


def test_captions_embedded_beside_the_pairs_are_not_written() -> None:
    """Offline negatives stand behind the pairs, and a caption is not always that of the image in its row."""
    model: Any = class_of(ModelSettings.model_validate(MODEL))
    model = model(ModelSettings.model_validate(MODEL), (REGIONS, WIDTH), WORDS, seed=0)
    ids, lengths = padded(CAPTIONS)
    embedded = model.embed_batch(random(IMAGES, REGIONS, WIDTH), ids, lengths)
    pairs = model.further_losses(build("triplet-hn"), embedded, lengths, torch.arange(2))
    torch.testing.assert_close(pairs["captioning"], model.captioner(embedded[2][0][:2], ids[:2], lengths[:2]))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"image": {"encoder": "linear"}}, "needs model.image.encoder = region-graph"),
        ({"text": {"encoder": "gru"}}, "needs model.text.boundaries = true"),
        (
            {"text": {"encoder": "transformer", "weights": "random", "architecture": {"model_type": "bert"}}},
            "needs model.text.encoder = gru",
        ),
    ],
)
def test_what_the_captioner_cannot_read_is_refused(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ModelSettings.model_validate({**MODEL, **change})


def test_twins_and_replicas_are_refused(few_pictures: Path) -> None:
    needs = "fusion captioning needs the captions of a whole batch in one network, which "
    with pytest.raises(UserError, match=f"{needs}model.networks = twins cannot give"):
        settings_of(few_pictures, "vsrn-tiny", "model.networks=twins")
    clash = components.clash(settings_of(few_pictures, "vsrn-tiny").model, others=Resources(replicas=2).components)
    assert clash.startswith(f"{needs}resources.replicas = 2 cannot give")


def test_the_image_encoder_trains_without_the_captioner() -> None:
    settings = ModelSettings.model_validate({**MODEL, "fusion": {"kind": "none"}})
    assert class_of(settings) is DualEncoder
    model = DualEncoder(settings, (REGIONS, WIDTH), WORDS, seed=0)
    assert model.embed_images(random(IMAGES, REGIONS, WIDTH)).shape == (IMAGES, DIM)
    with pytest.raises(UserError, match="image encoder 'region-graph' reads several vectors per image"):
        DualEncoder(settings, (WIDTH,), WORDS, seed=0)
