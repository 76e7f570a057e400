"""Encoders: unit vectors that do not depend on the batch they come in, from weights that only the seed decides."""

import pytest
import torch

from grid import catalog
from grid.settings import ModelSettings
from retrieval.model import Vse, build
from retrieval.pooling import POOLING
from retrieval.vocabulary import Vocabulary

SHAPES = {"cnn": (3, 32, 32), "linear": (9, 24)}
CAPTIONS = ["a dog", "a dog runs over the green grass", "grass", "the dog runs"]
TOKENS = Vocabulary.build(CAPTIONS, min_count=1).encode(CAPTIONS, max_words=9)
ALL = [(recipe, pooling) for recipe in catalog.names("recipes") for pooling in POOLING]


def model_of(recipe: str, pooling: str) -> tuple[Vse, torch.Tensor]:
    """An evaluated model, and four images for it."""
    content = catalog.recipe(recipe).model.model_dump() | {"dim": 16}
    content["image"]["pooling"] = pooling
    if "pooling" in content["text"]:
        content["text"]["pooling"] = pooling
    settings = ModelSettings.model_validate(content)
    shape = SHAPES[settings.image.encoder]
    images = torch.randint(0, 255, (4, *shape), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    return build(settings, shape, 12, seed=3).eval(), images if settings.image.encoder == "cnn" else images.half()


@pytest.mark.parametrize(("recipe", "pooling"), ALL)
def test_embeddings_are_unit_vectors(recipe: str, pooling: str) -> None:
    model, images = model_of(recipe, pooling)
    for vectors in (model.embed_images(images), model.embed_texts(*TOKENS.gather(torch.arange(4)))):
        assert torch.allclose(vectors.norm(dim=1), torch.ones(4), atol=1e-5)


@pytest.mark.parametrize(("recipe", "pooling"), ALL)
def test_a_caption_embeds_the_same_in_any_batch(recipe: str, pooling: str) -> None:
    model, images = model_of(recipe, pooling)
    together = model.embed_texts(*TOKENS.gather(torch.arange(4)))
    for row in range(4):
        alone = model.embed_texts(*TOKENS.gather(torch.tensor([row])))
        assert torch.allclose(together[row], alone[0], atol=1e-6)
        assert torch.allclose(model.embed_images(images)[row], model.embed_images(images[row : row + 1])[0], atol=1e-6)


def test_weights_depend_on_the_seed_alone() -> None:
    settings = catalog.recipe("cnn-gru").model
    torch.manual_seed(1)
    first = build(settings, (3, 32, 32), 12, seed=3)
    drawn = torch.rand(1)
    torch.manual_seed(1)
    assert torch.rand(1) == drawn, "building a model moved the global random state"
    second, third = build(settings, (3, 32, 32), 12, seed=3), build(settings, (3, 32, 32), 12, seed=4)
    pairs = list(zip(first.parameters(), second.parameters(), third.parameters(), strict=True))
    assert all(a.equal(b) for a, b, _ in pairs)
    assert not all(a.equal(c) for a, _, c in pairs)


def test_pooling_equals_the_literal() -> None:
    values = torch.randn(3, 5, 4, generator=torch.Generator().manual_seed(0))
    sizes = [5, 1, 3]
    present = torch.arange(5) < torch.tensor(sizes)[:, None]
    for row, size in enumerate(sizes):
        assert torch.allclose(POOLING["mean"](values, present)[row], values[row, :size].mean(0))
        assert POOLING["max"](values, present)[row].equal(values[row, :size].amax(0))
