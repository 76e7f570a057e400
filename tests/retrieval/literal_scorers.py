"""The scorers as published: a loop over captions, each with all images; the attended vectors and n x n tensors formed.

Nothing here is shared with `retrieval.scorers`.
"""

import torch
from torch import Tensor, nn

from goalgrid.grid.settings.scorers import BfanSettings, ScanSettings


def l2(x: Tensor, dim: int) -> Tensor:
    return x / (x.pow(2).sum(dim=dim, keepdim=True).sqrt() + 1e-8)


def cosine(a: Tensor, b: Tensor) -> Tensor:
    return (a * b).sum(-1) / (a.norm(dim=-1) * b.norm(dim=-1)).clamp(min=1e-8)


def weights(query: Tensor, context: Tensor, sharpness: float) -> Tensor:
    """Attention of queries (b, q, d) over their context (b, c, d): (b, q, c)."""
    attention = torch.nn.functional.leaky_relu(torch.bmm(context, query.transpose(1, 2)), 0.1)
    attention = l2(attention, 2).transpose(1, 2).contiguous()
    return torch.softmax(attention * sharpness, dim=-1)


def attended(attention: Tensor, context: Tensor) -> Tensor:
    """What each query attends to (b, q, d), from the transposed product of the published code."""
    context, attention = context.transpose(1, 2), attention.transpose(1, 2).contiguous()
    return torch.bmm(context, attention).transpose(1, 2)


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
    caption = caption.repeat(len(images), 1, 1)
    query, context = (caption, images) if own.direction == "t2i" else (images, caption)
    cosines = cosine(query, attended(weights(query, context, own.sharpness), context))
    return pool(cosines, own.pooling, own.lse_sharpness)


def bfan(images: Tensor, caption: Tensor, own: BfanSettings) -> Tensor:
    caption = caption.repeat(len(images), 1, 1)
    score = torch.zeros(len(images), dtype=images.dtype)
    for query, context in ((caption, images), (images, caption)):
        attention = focal(weights(query, context, own.sharpness), own.focal)
        score = score + cosine(query, attended(attention, context)).mean(-1)
    return score


WORK = {ScanSettings: scan, BfanSettings: bfan}
"""The loop's work for a caption (1, l, d) and all images (b, n, d), by the settings' class."""


def nodes(images: Tensor, caption: Tensor, model: nn.Module, of_image: Tensor, of_text: Tensor) -> Tensor:
    """(b, 1 + l, w): the whole sets' vector of similarity, then the words'."""
    query = caption.repeat(len(images), 1, 1)
    context = l2(attended(weights(query, images, model.sharpness), images), -1)
    local = l2(model.local((context - query).pow(2)), -1)
    whole = l2(model.whole((of_image - of_text).pow(2)), -1)
    return torch.cat([whole[:, None], local], 1)


def whole(vectors: Tensor, own: nn.Module, images: bool) -> Tensor:
    """Of images (b, n, d) or of a caption (1, l, d), by the modules of the published code one after the other."""
    mean = vectors.mean(1)
    local, raw = own.local(vectors), own.mean(mean)
    if images:
        local, raw = own.local_norm(local), own.mean_norm(raw)
    common = own.common(local.tanh() * raw.tanh()[:, None]).squeeze(2)
    return l2((torch.softmax(common, 1)[..., None] * vectors).sum(1), -1)


def sgr(emb: Tensor, model: nn.Module) -> Tensor:
    for query, key, graph in zip(model.queries, model.keys, model.graphs, strict=True):
        edge = torch.softmax(query(emb) @ key(emb).transpose(1, 2), dim=-1)
        emb = torch.relu(graph(edge @ emb))
    return torch.sigmoid(model.score(emb[:, 0]))[:, 0]


def saf(emb: Tensor, model: nn.Module) -> Tensor:
    attention = torch.sigmoid(model.norm(model.filter(emb).permute(0, 2, 1)))
    attention = attention / (attention.abs().sum(-1, keepdim=True) + 1e-8)
    return torch.sigmoid(model.score(l2((attention @ emb)[:, 0], -1)))[:, 0]


def sgraf(model: nn.Module, images: Tensor, captions: list[Tensor]) -> Tensor:
    """Scores of images (b, n, d) by captions of a scorer with weights."""
    work = sgr if hasattr(model, "graphs") else saf
    of_image = whole(images, model.of_image, True)
    of_texts = [whole(caption[None], model.of_text, False) for caption in captions]
    pairs = zip(captions, of_texts, strict=True)
    return torch.stack([work(nodes(images, caption, model, of_image, own), model) for caption, own in pairs], 1)


def scores(settings: object, images: list[Tensor], captions: list[Tensor]) -> Tensor:
    """Scores of images by captions, (i, t). Images of other sizes than the rest are taken alone."""
    work = WORK[type(settings)]
    columns = []
    for caption in captions:
        one = [work(image[None], caption[None], settings) for image in images]
        columns.append(torch.cat(one))
    return torch.stack(columns, 1)
