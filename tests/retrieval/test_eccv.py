"""ECCV Caption and CxC: our metrics are those of the package that publishes the judgements."""

import warnings

import numpy as np
import pytest
import torch

from goalgrid.grid.errors import UserError
from goalgrid.retrieval import eccv


def of_the_package(i2t: np.ndarray, t2i: np.ndarray) -> dict[str, float]:
    """The metrics of rows of answers, by the package that publishes the judgements."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it proposes ujson
        from eccv_caption import Metrics

        judge = Metrics()
    captions = judge.coco_ids
    images = np.array([judge.coco_gts["t2i"][int(key)][0] for key in captions[::5]])
    answers = (
        {int(key): captions[row].tolist() for key, row in zip(images, i2t, strict=True)},
        {int(key): images[row].tolist() for key, row in zip(captions, t2i, strict=True)},
    )
    found = judge.compute_all_metrics(
        *answers, target_metrics=("cxc_recalls", "eccv_map_at_r", "eccv_rprecision", "eccv_r1")
    )
    return {f"{way}_{name}": 100 * value for name, values in found.items() for way, value in values.items()}


def test_metrics_of_answers_equal_the_package(capsys: pytest.CaptureFixture[str]) -> None:
    """Of answers that begin up to 30 places before a query's own."""
    before, places = np.random.default_rng(0).integers(0, 30, 25_000), np.arange(eccv.DEEPEST)
    i2t = (5 * np.arange(5000) - before[:5000])[:, None] + places
    t2i = (np.arange(25_000) // 5 - before)[:, None] + places
    i2t, t2i = i2t % 25_000, t2i % 5000
    found = eccv.of_answers({"i2t": i2t, "t2i": t2i})
    assert found == pytest.approx(of_the_package(i2t, t2i))
    assert all(0 < value < 100 for value in found.values())
    capsys.readouterr()  # the package's progress bar


def test_the_best_are_those_of_the_whole_matrix() -> None:
    generator = torch.Generator().manual_seed(0)
    image, text = (torch.randn(count, 8, generator=generator, dtype=torch.float64) for count in (700, 60))
    i2t, t2i = eccv.best(image, text, part=25)
    scores = image @ text.T
    assert torch.equal(i2t, scores.argsort(dim=1, descending=True)[:, : eccv.DEEPEST])
    assert torch.equal(t2i, scores.T.argsort(dim=1, descending=True)[:, : eccv.DEEPEST])


@pytest.mark.slow
def test_metrics_equal_the_package(capsys: pytest.CaptureFixture[str]) -> None:
    generator = torch.Generator().manual_seed(0)
    image = torch.randn(5000, 16, generator=generator)
    owners = np.repeat(np.arange(5000), 5)
    text = image[torch.from_numpy(owners)] + 0.7 * torch.randn(25000, 16, generator=generator)
    image, text = (torch.nn.functional.normalize(vectors, dim=1) for vectors in (image, text))
    mixed = np.random.default_rng(0).permutation(5000)  # the order of captions of different images does not count
    order = (5 * mixed[:, None] + np.arange(5)).ravel()
    found = eccv.metrics(image, text[torch.from_numpy(order)], owners[order], part=9000)
    theirs = of_the_package(*(answers.numpy() for answers in eccv.best(image, text)))
    capsys.readouterr()  # its progress bar
    assert found == pytest.approx(theirs)
    assert found["i2t_eccv_r1"] > 10


def test_other_images_are_refused() -> None:
    vectors = torch.eye(4)
    with pytest.raises(UserError, match=r"needs COCO's 5,000 test images with 5 captions each.*here are 4 images"):
        eccv.metrics(vectors, vectors, np.arange(4))
