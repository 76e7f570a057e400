"""The scorers as published: a loop over captions, each with all images; the attended vectors and n x n tensors formed.

Nothing here is shared with `retrieval.scorers`.
"""

import torch
from torch import Tensor

from grid.scorers import BfanSettings, ScanSettings


def l2(x: Tensor, dim: int) -> Tensor:
    return x / (x.pow(2).sum(dim=dim, keepdim=True).sqrt() + 1e-8)


def cosine(a: Tensor, b: Tensor) -> Tensor:
    return (a * b).sum(-1) / (a.norm(dim=-1) * b.norm(dim=-1)).clamp(min=1e-8)


def weights(query: Tensor, context: Tensor, sharpness: float) -> Tensor:
    """Attention of queries (b, q, d) over their context (b, c, d): (b, q, c)."""
    attention = torch.nn.functional.leaky_relu(context @ query.transpose(1, 2), 0.1)
    return torch.softmax(l2(attention, 2).transpose(1, 2) * sharpness, dim=-1)


def focal(attention: Tensor, kind: str) -> Tensor:
    if kind == "equal":
        over = attention.shape[-1] * attention - attention.sum(-1, keepdim=True)
    else:
        differences = attention[..., :, None] - attention[..., None, :]
        over = (differences * attention.sqrt()[..., None, :]).sum(-1)
    kept = attention * (over.detach() > 0)
    return kept / kept.sum(-1, keepdim=True)


def pool(cosines: Tensor, kind: str, sharpness: float) -> Tensor:
    if kind == "lse":
        return (sharpness * cosines).exp().sum(-1).log() / sharpness
    return {"mean": cosines.mean(-1), "max": cosines.amax(-1), "sum": cosines.sum(-1)}[kind]


def scan(images: Tensor, caption: Tensor, own: ScanSettings) -> Tensor:
    query, context = (caption, images) if own.direction == "t2i" else (images, caption)
    cosines = cosine(query, weights(query, context, own.sharpness) @ context)
    return pool(cosines, own.pooling, own.lse_sharpness)


def bfan(images: Tensor, caption: Tensor, own: BfanSettings) -> Tensor:
    score = torch.zeros(len(images), dtype=images.dtype)
    for query, context in ((caption, images), (images, caption)):
        attention = focal(weights(query, context, own.sharpness), own.focal)
        score = score + cosine(query, attention @ context).mean(-1)
    return score


def scores(settings: object, images: list[Tensor], captions: list[Tensor]) -> Tensor:
    """Scores of images by captions, (i, t). Images of other sizes than the rest are taken alone."""
    work = {ScanSettings: scan, BfanSettings: bfan}[type(settings)]
    columns = []
    for caption in captions:
        one = [work(image[None], caption[None], settings) for image in images]
        columns.append(torch.cat(one))
    return torch.stack(columns, 1)
