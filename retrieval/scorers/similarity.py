"""Vectors of similarity in place of cosines: of words with what they attend to, and of the whole sets. SGRAF.

A pair has 1 + l nodes, the whole sets' first; SGR lets them reason over their graph, SAF weighs them.
"""

from abc import abstractmethod
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from goalgrid.grid.settings.scorers import SafSettings, SgrafSettings, SgrSettings
from goalgrid.retrieval.scorers.cross_attention import (
    EPS,
    SMALLEST,
    PairProducts,
    SetScorer,
    attention,
    everything,
    look,
    recomputed,
)
from goalgrid.retrieval.scorers.sets import TokenSets, by_size

VALUES = {"cpu": 2**23, "cuda": 2**26}
"""Values of vectors that are worked on at once: on a CPU, more than fit its cache: products of few rows are slow."""


def unit(x: Float[Tensor, "*b d"]) -> Float[Tensor, "*b d"]:
    """x / (|x| + 1e-8), as published."""
    return x / (torch.linalg.vector_norm(x, dim=-1, keepdim=True) + EPS)


def wholes(sets: TokenSets) -> Float[Tensor, "b d"]:
    assert sets.whole is not None
    return sets.whole


def _linear(width: int, to: int) -> nn.Linear:
    """With the published first weights: Xavier's, and no bias."""
    layer = nn.Linear(width, to)
    nn.init.xavier_uniform_(layer.weight)
    nn.init.zeros_(layer.bias)
    return layer


class Whole(nn.Module):
    """A unit vector of a whole set: its members, weighted by how they agree with their mean. SGRAF §3.1.

    Batch norms are used for sets of so many members (images), not for sets of any size.
    """

    def __init__(self, dim: int, dropout: float, members: int | None) -> None:
        super().__init__()
        self.local, self.mean, self.common = _linear(dim, dim), _linear(dim, dim), _linear(dim, 1)
        self.local_norm = nn.BatchNorm1d(members) if members else nn.Identity()
        self.mean_norm = nn.BatchNorm1d(dim) if members else nn.Identity()
        self.dropout = nn.Dropout(dropout)

    def forward(self, sets: TokenSets) -> Float[Tensor, "b d"]:
        vectors, present = sets.vectors, sets.present
        mean = self.dropout(self.mean_norm(self.mean(vectors.sum(1) / sets.sizes_beside[:, None])).tanh())
        local = self.dropout(self.local_norm(self.local(vectors)).tanh())
        scores = self.common(local * mean[:, None])[..., 0].to(vectors.dtype)
        if present is not None:
            scores = scores.masked_fill(~present, -torch.inf)
        return unit((scores.softmax(1)[..., None] * vectors).sum(1))


class SquaredDifferences(torch.autograd.Function):
    """W (c - t)² of words t and what they attend to, c, a few images at a time; c is formed again for the gradient."""

    @staticmethod
    def forward(
        ctx: Any,
        weights: Float[Tensor, "i q n"],
        regions: Float[Tensor, "i n d"],
        words: Float[Tensor, "#i q d"],
        matrix: Float[Tensor, "w d"],
    ) -> Float[Tensor, "i q w"]:
        ctx.save_for_backward(weights, regions, words, matrix)
        words = words.expand(len(regions), -1, -1)
        parts = zip(*(x.split(_step(words)) for x in (weights, regions, words)), strict=True)
        mapped = [_differences(*part).square_() @ matrix.T for part in parts]
        return mapped[0] if len(mapped) == 1 else torch.cat(mapped)

    @staticmethod
    def backward(ctx: Any, gradient: Float[Tensor, "i q w"]) -> Any:
        weights, regions, words, matrix = ctx.saved_tensors
        every = words.expand(len(regions), -1, -1)
        to_weights, to_regions, to_words = torch.empty_like(weights), torch.empty_like(regions), list[Tensor]()
        to_matrix = torch.zeros_like(matrix)
        for start in range(0, len(regions), _step(every)):
            part = slice(start, start + _step(every))
            apart = _differences(weights[part], regions[part], every[part])
            to_matrix += gradient[part].flatten(0, 1).T @ apart.square().flatten(0, 1)
            to_apart = (gradient[part] @ matrix).mul_(apart).mul_(2)
            to_weights[part] = to_apart @ regions[part].transpose(1, 2)
            to_regions[part] = weights[part].transpose(1, 2) @ to_apart
            to_words.append(-to_apart if len(words) > 1 else -to_apart.sum(0, keepdim=True))
        of_words = torch.cat(to_words)
        return to_weights, to_regions, of_words if len(words) > 1 else of_words.sum(0, keepdim=True), to_matrix


def _step(words: Float[Tensor, "i q d"]) -> int:
    return max(1, VALUES.get(words.device.type, VALUES["cuda"]) // words[0].numel())


def _differences(
    weights: Float[Tensor, "i q n"], regions: Float[Tensor, "i n d"], words: Float[Tensor, "i q d"]
) -> Float[Tensor, "i q d"]:
    """c - t."""
    return torch.baddbmm(words, weights, regions, beta=-1)


class Sgraf(SetScorer):
    """Base class of SGR and SAF: the nodes of a pair."""

    def __init__(self, settings: SgrafSettings, regions: int, dim: int) -> None:
        super().__init__()
        self.sharpness = settings.sharpness
        self.of_image, self.of_text = Whole(dim, settings.dropout, regions), Whole(dim, settings.dropout, None)
        self.local, self.whole = _linear(dim, settings.width), _linear(dim, settings.width)
        self.score = _linear(settings.width, 1)

    def looks(self, regions: Tensor, words: Tensor) -> dict[str, Tensor]:
        return {"t2i": look(words, regions, self.sharpness, everything)}

    def image_whole(self, images: TokenSets) -> TokenSets:
        return TokenSets(images.vectors, images.sizes, self.of_image(images.full()))

    def text_whole(self, texts: TokenSets) -> TokenSets:
        return TokenSets(texts.vectors, texts.sizes, self.of_text(texts.full()))

    def pair_weights(self) -> list[nn.Parameter]:
        of_wholes = ("of_image.", "of_text.")
        return [weight for name, weight in self.named_parameters() if not name.startswith(of_wholes)]

    def forward(self, images: TokenSets, texts: TokenSets) -> Float[Tensor, "i t"]:
        images, texts = images.full(), texts.full()
        count, _, dim = images.vectors.shape
        block = VALUES.get(images.device.type, VALUES["cuda"])
        regions, of_regions, of_image = images.vectors, images.vectors @ images.vectors.transpose(1, 2), wholes(images)
        groups, places = by_size(texts.sizes, max(1, block // (count * dim)), texts.device)
        columns = list[Tensor]()
        for rows, size in groups:
            words, whole = texts.vectors[rows, :size], wholes(texts)[rows]
            step = max(1, block // words.numel()) if self.by_pair or not self.training else count
            parts = list[Tensor]()
            for part in (slice(start, start + step) for start in range(0, count, step)):
                tile = regions[part]
                dots = (tile.flatten(0, 1) @ words.flatten(0, 1).T).view(*tile.shape[:2], *words.shape[:2])
                parts.append(self.block(dots, tile, of_regions[part], of_image[part], words[None], whole[None]))
            columns.append(torch.cat(parts))
        self.end(places)
        return torch.cat(columns, 1).index_select(1, places)

    def end(self, places: Int[Tensor, " t"]) -> None:
        """Note that all captions are scored, with the index of each among the scored ones."""

    def pairs(
        self, images: TokenSets, texts: TokenSets, rows: Int[Tensor, " p"], columns: Int[Tensor, " p"]
    ) -> Float[Tensor, " p"]:
        images, texts = images.full(), texts.full()
        products_of = images.vectors @ images.vectors.transpose(1, 2)
        products = PairProducts.apply(images.vectors, texts.vectors, rows, columns)
        groups, places = by_size(texts.sizes[columns.cpu()], len(rows) * texts.vectors.shape[1], rows.device)
        scores = list[Tensor]()
        for place, size in groups:
            row, column = rows[place], columns[place]
            words, whole = texts.vectors.index_select(0, column)[:, None, :size], wholes(texts).index_select(0, column)
            dots = products[place, :, None, :size]
            regions, of_image = images.vectors.index_select(0, row), wholes(images).index_select(0, row)
            of_regions = products_of[row]
            scores.append(self.block(dots, regions, of_regions, of_image, words, whole[:, None])[:, 0])
        return torch.cat(scores).index_select(0, places)

    def block(
        self,
        dots: Float[Tensor, "i n g l"],
        regions: Float[Tensor, "i n d"],
        of_regions: Float[Tensor, "i n n"],
        of_image: Float[Tensor, "i d"],
        words: Float[Tensor, "#i g l d"],
        of_text: Float[Tensor, "#i g d"],
    ) -> Float[Tensor, "i g"]:
        """Return scores by L2(W (v - t)²) of the whole sets, and of each word t and what it attends to in the image.

        What a word attends to is brought to unit length by sqrt(a' G a), before it is formed.
        """
        weights = attention(dots, self.sharpness, None).flatten(2)
        lengths = (weights * (of_regions @ weights)).sum(1, keepdim=True).clamp(min=SMALLEST).sqrt()
        aimed = (weights / (lengths + EPS)).transpose(1, 2)
        local = SquaredDifferences.apply(aimed, regions, words.flatten(1, 2), self.local.weight) + self.local.bias
        whole = self.whole((of_image[:, None] - of_text).square())
        given = whole[:, :, None], local.unflatten(1, dots.shape[2:])
        return recomputed(self.of_nodes, *given) if local.requires_grad else self.of_nodes(*given)

    def of_nodes(self, whole: Float[Tensor, "i g 1 w"], local: Float[Tensor, "i g l w"]) -> Float[Tensor, "i g"]:
        """Return scores from the vectors of similarity before they are normalised."""
        return self.scores(unit(torch.cat([whole, local], 2)))

    @abstractmethod
    def scores(self, nodes: Float[Tensor, "i g m w"]) -> Float[Tensor, "i g"]:
        """Return the scores, between 0 and 1, from the nodes of all images with captions of one length."""


class Sgr(Sgraf):
    """Similarity graph reasoning. SGRAF §3.2."""

    def __init__(self, settings: SgrSettings, regions: int, dim: int) -> None:
        super().__init__(settings, regions, dim)
        self.queries, self.keys, self.graphs = (
            nn.ModuleList([_linear(settings.width, settings.width) for _ in range(settings.steps)]) for _ in range(3)
        )

    def scores(self, nodes: Float[Tensor, "i g m w"]) -> Float[Tensor, "i g"]:
        """N <- ReLU(W softmax((Wq N)(Wk N)') N) at each step; the first node is scored.

        Two identities save a third of the maps and nearly all of the last step: a softmax over keys does not notice
        what all keys share, so Wk' (Wq N + b) N' are its exponents, and the bias of Wk has no gradient; and of the last
        step the first node alone is read.
        """
        shape = nodes.shape
        nodes = nodes.flatten(0, 1)
        last = len(self.graphs) - 1
        for step, (query, key, graph) in enumerate(zip(self.queries, self.keys, self.graphs, strict=True)):
            read = nodes[:, :1] if step == last else nodes
            keys: Tensor = key.weight.T  # type: ignore[assignment]
            queries = nn.functional.linear(read, keys @ query.weight, keys @ query.bias)  # type: ignore[operator]
            nodes = graph((queries @ nodes.transpose(1, 2)).softmax(-1) @ nodes).relu_()
        return self.score(nodes[:, 0]).sigmoid().view(shape[:2])


class Saf(Sgraf):
    """Similarity attention filtration. SGRAF §3.3.

    Its batch norm has, in training, the statistics of a caption's nodes with all images of the batch, as published: a
    score depends on all images, so all scores need a graph. The running statistics take a caption after another.
    """

    by_pair = False

    def __init__(self, settings: SafSettings, regions: int, dim: int) -> None:
        super().__init__(settings, regions, dim)
        self.filter = _linear(settings.width, 1)
        self.norm = nn.BatchNorm1d(1)
        self._seen = list[tuple[Tensor, Tensor]]()

    def forward(self, images: TokenSets, texts: TokenSets) -> Float[Tensor, "i t"]:
        self._seen.clear()  # what a backward pass computed again
        return super().forward(images, texts)

    def scores(self, nodes: Float[Tensor, "i g m w"]) -> Float[Tensor, "i g"]:
        """Return the sigmoid of the sum of the nodes, weighted by sigmoids of batch norms that sum to 1."""
        logits = self.filter(nodes)[..., 0]
        mean, var = self.norm.running_mean, self.norm.running_var
        if self.training:
            count = logits.shape[0] * logits.shape[2]
            var, mean = torch.var_mean(logits, (0, 2), correction=0, keepdim=True)
            unbiased = var.detach().flatten() * count / max(1, count - 1)
            self._seen.append((mean.detach().flatten(), unbiased))
        assert mean is not None
        assert var is not None
        weights = (logits - mean) / (var + self.norm.eps).sqrt() * self.norm.weight + self.norm.bias
        weights = weights.sigmoid()
        weights = weights / (weights.sum(-1, keepdim=True) + EPS)
        return self.score(unit((weights[..., None] * nodes).sum(2)))[..., 0].sigmoid()

    @torch.no_grad()
    def end(self, places: Int[Tensor, " t"]) -> None:
        """Take each caption's statistics into the running ones, in the order of the captions, as published."""
        if not self.training:
            return
        momentum, count = self.norm.momentum or 0.0, len(places)
        shares = momentum * (1 - momentum) ** torch.arange(count - 1, -1, -1, device=places.device)
        statistics = (self.norm.running_mean, self.norm.running_var)
        for running, seen in zip(statistics, zip(*self._seen, strict=True), strict=True):
            assert running is not None
            running.mul_((1 - momentum) ** count).add_(torch.cat(seen)[places].to(running) @ shares.to(running))
        assert self.norm.num_batches_tracked is not None
        self.norm.num_batches_tracked.add_(count)
