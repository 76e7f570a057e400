"""ECCV Caption and CxC: the metrics are those of the package, by their definitions, for rows of answers."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from goalgrid.grid.errors import UserError
from goalgrid.retrieval import eccv


def literal(i2t: np.ndarray, t2i: np.ndarray) -> dict[str, float]:
    """The metrics of rows of answers, query by query."""
    import eccv_caption

    folder = Path(eccv_caption.__file__).parent / "data"
    captions = np.load(folder / "coco_test_ids.npy")
    image_of = json.loads((folder / "original_caption_to_image.json").read_text())
    images = np.array([image_of[str(key)][0] for key in captions[::5]])
    values: dict[str, list[float]] = {}
    ways = (("i2t", "image", "caption", images, captions[i2t]), ("t2i", "caption", "image", captions, images[t2i]))
    for way, asks, answers, queries, of_query in ways:
        rows = {int(query): row.tolist() for query, row in zip(queries, of_query, strict=True)}
        for query, right in json.loads((folder / f"eccv_{asks}_to_{answers}.json").read_text()).items():
            hits = [answer in right for answer in rows[int(query)][: len(right)]]
            precisions = [sum(hits[: place + 1]) / (place + 1) * hit for place, hit in enumerate(hits)]
            values.setdefault(f"{way}_eccv_map_at_r", []).append(sum(precisions) / len(right))
            values.setdefault(f"{way}_eccv_rprecision", []).append(sum(hits) / len(right))
            values.setdefault(f"{way}_eccv_r1", []).append(hits[0])
        for query, right in json.loads((folder / f"cxc_{asks}_to_{answers}.json").read_text()).items():
            for k in (1, 5, 10):
                values.setdefault(f"{way}_cxc_r{k}", []).append(bool(set(rows[int(query)][:k]) & set(right)))
    return {name: 100 * float(np.mean(parts)) for name, parts in values.items()}


def test_metrics_of_answers_equal_the_literal(capsys: pytest.CaptureFixture[str]) -> None:
    """Of answers that begin up to 30 places before a query's own."""
    before, places = np.random.default_rng(0).integers(0, 30, 25_000), np.arange(eccv.DEEPEST)
    i2t = (5 * np.arange(5000) - before[:5000])[:, None] + places
    t2i = (np.arange(25_000) // 5 - before)[:, None] + places
    i2t, t2i = i2t % 25_000, t2i % 5000
    metrics = eccv.of_answers(eccv.judge(), i2t, t2i)
    assert metrics == pytest.approx(literal(i2t, t2i))
    assert list(metrics) == list(literal(i2t, t2i))
    assert all(0 < value < 100 for value in metrics.values())
    assert capsys.readouterr() == ("", "")


def test_the_best_are_those_of_the_whole_matrix() -> None:
    generator = torch.Generator().manual_seed(0)
    image, text = (torch.randn(count, 8, generator=generator, dtype=torch.float64) for count in (700, 60))
    i2t, t2i = eccv.best(image, text, part=25)
    scores = image @ text.T
    assert torch.equal(i2t, scores.argsort(dim=1, descending=True)[:, : eccv.DEEPEST])
    assert torch.equal(t2i, scores.T.argsort(dim=1, descending=True)[:, : eccv.DEEPEST])


@pytest.mark.slow
def test_the_order_of_captions_of_different_images_does_not_count() -> None:
    generator = torch.Generator().manual_seed(0)
    image = torch.randn(5000, 16, generator=generator)
    owners = np.repeat(np.arange(5000), 5)
    text = image[torch.from_numpy(owners)] + 0.7 * torch.randn(25000, 16, generator=generator)
    image, text = (torch.nn.functional.normalize(vectors, dim=1) for vectors in (image, text))
    order = (5 * np.random.default_rng(0).permutation(5000)[:, None] + np.arange(5)).ravel()
    metrics = eccv.metrics(image, text[torch.from_numpy(order)], owners[order], part=9000)
    assert metrics == pytest.approx(literal(*(answers.numpy() for answers in eccv.best(image, text))))
    assert metrics["i2t_eccv_r1"] > 10


def test_other_images_are_refused() -> None:
    vectors = torch.eye(4)
    with pytest.raises(UserError, match=r"needs COCO's 5,000 test images with 5 captions each.*the data have 4 images"):
        eccv.metrics(vectors, vectors, np.arange(4))


@pytest.mark.slow
def test_the_order_of_an_images_captions_does_not_count_where_they_have_ids() -> None:
    """Captions of an image, and images, in any order: with COCO's ids, the numbers of Karpathy's order."""
    generator, random = torch.Generator().manual_seed(0), np.random.default_rng(0)
    image = torch.nn.functional.normalize(torch.randn(5000, 8, generator=generator), dim=1)
    owners = np.repeat(np.arange(5000), 5)
    text = image[torch.from_numpy(owners)] + 0.7 * torch.randn(25000, 8, generator=generator)
    ids = eccv.judge().coco_ids
    expected = eccv.metrics(image, text, owners, part=9000, ids=ids)
    assert expected == pytest.approx(literal(*(answers.numpy() for answers in eccv.best(image, text))))
    captions, images = random.permutation(25000), random.permutation(5000)
    place = np.argsort(images)
    shuffled = (image[torch.from_numpy(images)], text[torch.from_numpy(captions)], place[owners[captions]])
    assert eccv.metrics(*shuffled, part=9000, ids=ids[captions]) == pytest.approx(expected)
    with pytest.raises(UserError, match=rf"1 judged caption not among the ids .* the first is {ids[3]}"):
        eccv.metrics(image, text, owners, ids=np.where(np.arange(25000) == 3, 1, ids))
