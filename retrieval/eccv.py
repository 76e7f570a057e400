"""ECCV Caption and CxC: COCO's 5,000 test images, with additional image-caption matches judged correct by people.

A third of the errors by COCO's annotations are correct answers. The package `eccv_caption` contains the judgements and
the metrics.
"""

import warnings
from collections.abc import Callable
from contextlib import redirect_stderr
from io import StringIO
from typing import Any

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor

from goalgrid.grid import optional_dependencies
from goalgrid.grid.errors import UserError, counted
from goalgrid.grid.protocols import JUDGED
from goalgrid.retrieval.evaluation import RECALLS, Rows, Scoring, product

IMAGES, CAPTIONS = 5000, 5
"""Number of test images, and of captions per image."""
DEEPEST = 50
"""Number of top answers considered; no query has more correct ones."""
CHUNK = 500
"""Number of images whose scores are held in memory at once."""


def metrics(
    image: Rows,
    text: Rows,
    image_of_text: Int[np.ndarray, " t"],
    score: Scoring | None = None,
    *,
    part: int | None = None,
    ids: Int[np.ndarray, " t"] | None = None,
) -> dict[str, float]:
    """Return ECCV Caption's mAP@R, R-Precision and R@1, and CxC's recalls, in percent, by `DIRECTION_METRIC`.

    R is the number of correct answers of a query. R-Precision: share of correct answers among the first R. mAP@R: mean
    over the ranks up to R of the precision at that rank, 0 at wrong answers. CxC R@K: any correct answer among the
    first K.

    Args:
        score: scoring function for images and texts that are not single vectors.
        part: number of texts scored at a time.
        ids: COCO annotation ids of the captions; without them, the captions must be in Karpathy's order.

    Raises:
        UserError: the package is not installed, or these are not COCO's 5,000 test images with five captions each.
    """
    judged_by = judge()
    counts = np.bincount(image_of_text, minlength=len(image))
    if len(image) != IMAGES or (counts != CAPTIONS).any():
        raise UserError(
            f"protocol 'eccv' needs COCO's {IMAGES:,} test images with {CAPTIONS} captions each, in Karpathy's order; "
            f"the data have {len(image):,} images with {counts.min()} to {counts.max()} captions each."
        )
    order = np.argsort(image_of_text, kind="stable") if ids is None else _by_ids(ids, judged_by.coco_ids)
    images = image_of_text[order].reshape(IMAGES, CAPTIONS)
    if (images != images[:, :1]).any():
        raise UserError(
            "protocol 'eccv': the ids (sentid) assign captions to the wrong images. Download Karpathy's file again."
        )
    if (images[:, 0] != np.arange(IMAGES)).any():
        image = image[torch.from_numpy(images[:, 0].copy())]
    i2t, t2i = best(image, text[torch.from_numpy(order)], score, part=part)
    return of_answers(judged_by, i2t.numpy(), t2i.numpy())


def _by_ids(ids: Int[np.ndarray, " t"], judged: Int[np.ndarray, " t"]) -> Int[np.ndarray, " t"]:
    """Return the row of each judged caption; raises UserError if one is missing."""
    places = dict(zip(ids.tolist(), range(len(ids)), strict=True))
    if lost := [key for key in judged.tolist() if key not in places]:
        raise UserError(
            f"protocol 'eccv': {counted(len(lost), 'judged caption')} not among the ids (sentid) of the captions, "
            f"the first is {lost[0]}. It needs COCO's 5,000 test images as in Karpathy's dataset_coco.json."
        )
    return np.array([places[key] for key in judged.tolist()])


def judge() -> Any:
    optional_dependencies.require("protocol 'eccv'", "eccv_caption")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it proposes ujson
        from eccv_caption import Metrics
    return Metrics()


def of_answers(judge: Any, i2t: Int[np.ndarray, "i k"], t2i: Int[np.ndarray, "t k"]) -> dict[str, float]:
    """Compute the metrics of `metrics` from the rows of each query's best answers; captions in Karpathy's order."""
    captions = judge.coco_ids
    images = np.array([judge.coco_gts["t2i"][int(key)][0] for key in captions[::CAPTIONS]])
    of_images = dict(zip(images.tolist(), captions[i2t].tolist(), strict=True))
    of_captions = dict(zip(captions.tolist(), images[t2i].tolist(), strict=True))
    with redirect_stderr(StringIO()):  # a progress bar
        of_all = judge.compute_all_metrics(of_images, of_captions, target_metrics=("cxc_recalls", *JUDGED), Ks=RECALLS)
    return {f"{way}_{name}": 100 * float(of_all[name][way]) for way in ("i2t", "t2i") for name in JUDGED}


def best(
    image: Rows, text: Rows, score: Scoring | None = None, *, part: int | None = None
) -> tuple[Int[Tensor, "i k"], Int[Tensor, "t k"]]:
    """Return the rows of the `DEEPEST` best texts for every image, and images for every text, best first."""
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
