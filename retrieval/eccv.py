"""ECCV Caption and CxC: COCO's 5,000 test images with the captions that people judged right beside an image's own five.

A third of what COCO counts as errors are right answers. The judgements are files of the package `eccv_caption`, which
work without a network; they name captions and images by COCO's ids, in the order of Karpathy's test split.
"""

import json
from collections.abc import Callable, Mapping
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor

from goalgrid.grid.errors import UserError
from goalgrid.retrieval.evaluation import RECALLS, Rows, Scoring, product

IMAGES, CAPTIONS = 5000, 5
"""Test images, and captions of each."""
DEEPEST = 50
"""Answers that are looked at: no query has more right ones."""
CHUNK = 500
"""Images whose scores are held at once."""

Judged = Mapping[int, frozenset[int]]
"""Rows of the right answers, by the row of the query. An answer that is no row, an image's sixth caption, is negative:
it cannot be found, and it counts in R, as in the package."""


@cache
def judgements() -> dict[str, dict[str, Judged]]:
    """By source, `eccv` or `cxc`, and direction: the right answers of each judged query.

    Raises:
        UserError: the package is not installed.
    """
    spec = find_spec("eccv_caption")
    if spec is None or not spec.submodule_search_locations:
        raise UserError("protocol 'eccv' reads the judgements in the package eccv_caption: pip install eccv_caption.")
    folder = Path(spec.submodule_search_locations[0]) / "data"
    captions = np.load(folder / "coco_test_ids.npy")
    image_of = _json(folder / "original_caption_to_image.json")
    of_caption = {int(key): row for row, key in enumerate(captions)}
    of_image = {image_of[int(key)][0]: row for row, key in enumerate(captions[::CAPTIONS])}
    rows = {"image": of_image, "caption": of_caption}
    return {
        source: {
            direction: {
                rows[asks][key]: frozenset(rows[answers].get(answer, -answer) for answer in right)
                for key, right in _json(folder / f"{source}_{asks}_to_{answers}.json").items()
            }
            for direction, asks, answers in (("i2t", "image", "caption"), ("t2i", "caption", "image"))
        }
        for source in ("eccv", "cxc")
    }


def _json(path: Path) -> dict[int, list[int]]:
    return {int(key): list(map(int, value)) for key, value in json.loads(path.read_text(encoding="utf-8")).items()}


def metrics(
    image: Rows,
    text: Rows,
    image_of_text: Int[np.ndarray, " t"],
    score: Scoring | None = None,
    *,
    part: int | None = None,
) -> dict[str, float]:
    """ECCV Caption's mAP@R, R-Precision and R@1, and CxC's recalls, in percent, by `DIRECTION_METRIC`.

    R is the number of right answers of a query. R-Precision: share of right answers among the first R. mAP@R: mean
    over the places up to R of the precision there, 0 at wrong answers. CxC R@K: any right answer among the first K.

    Args:
        image_of_text: row of each text's image.
        score: of images and texts that are no single vectors.
        part: texts that are scored at a time; None: all.

    Raises:
        UserError: the package is not installed, or these are not COCO's 5,000 test images with five captions each.
    """
    judgements()
    counts = np.bincount(image_of_text, minlength=len(image))
    if len(image) != IMAGES or (counts != CAPTIONS).any():
        raise UserError(
            f"protocol 'eccv' needs COCO's {IMAGES:,} test images with {CAPTIONS} captions each, in Karpathy's order; "
            f"here are {len(image):,} images with {counts.min()} to {counts.max()} captions."
        )
    order = np.argsort(image_of_text, kind="stable")
    i2t, t2i = best(image, text[torch.from_numpy(order)], score, part=part)
    return of_answers({"i2t": i2t.numpy(), "t2i": t2i.numpy()})


def of_answers(every: Mapping[str, Int[np.ndarray, "q k"]]) -> dict[str, float]:
    """The metrics of `metrics`, of the rows of each query's best answers in both directions.

    Raises:
        UserError: the package is not installed.
    """
    judged, results = judgements(), dict[str, float]()
    for direction, answers in every.items():
        eccv = [_precisions(answers[query], right) for query, right in judged["eccv"][direction].items()]
        for place, name in enumerate(("eccv_map_at_r", "eccv_rprecision", "eccv_r1")):
            results[f"{direction}_{name}"] = 100 * float(np.mean([values[place] for values in eccv]))
        first = [_first(answers[query], right) for query, right in judged["cxc"][direction].items()]
        for k in RECALLS:
            results[f"{direction}_cxc_r{k}"] = 100 * float(np.mean([place < k for place in first]))
    return results


def best(
    image: Rows, text: Rows, score: Scoring | None = None, *, part: int | None = None
) -> tuple[Int[Tensor, "i k"], Int[Tensor, "t k"]]:
    """Rows of the best `DEEPEST` texts of every image and images of every text, the best first."""
    scores: Callable[[Any, Any], Tensor] = score or product
    best_sim: Tensor | None = None
    of_images, of_texts = list[Tensor](), torch.empty(len(text), 0, dtype=torch.long)
    width = part or len(text)
    for start in range(0, len(image), CHUNK):
        some = image[start : start + CHUNK]
        columns = [scores(some, text[begin : begin + width]).cpu() for begin in range(0, len(text), width)]
        sim = torch.cat(columns, dim=1)
        of_images.append(sim.topk(min(DEEPEST, sim.shape[1]), dim=1).indices)
        rows = torch.arange(start, start + len(sim)).expand(len(text), -1)
        both = sim.T if best_sim is None else torch.cat([best_sim, sim.T], dim=1)
        best_sim, places = both.topk(min(DEEPEST, both.shape[1]), dim=1)
        of_texts = torch.cat([of_texts, rows], dim=1).gather(1, places)
    return torch.cat(of_images), of_texts


def _precisions(answers: Int[np.ndarray, " k"], right: frozenset[int]) -> tuple[float, float, float]:
    """mAP@R, R-Precision and R@1 of a query."""
    hits = np.array([answer in right for answer in answers[: len(right)]])
    precision = hits.cumsum() / np.arange(1, len(hits) + 1)
    return float((precision * hits).mean()), float(hits.mean()), float(hits[0])


def _first(answers: Int[np.ndarray, " k"], right: frozenset[int]) -> int:
    """Place of the first right answer among those that are looked at."""
    return next((place for place, answer in enumerate(answers.tolist()) if answer in right), len(answers))
