"""The check of a user's own scorer: the same score in any batch, padding, gradient, and weights of a checkpoint."""

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn.functional import normalize, pad

from goalgrid.grid.settings.scorers import OwnScorerSettings
from goalgrid.retrieval.scorers import OwnScorer
from goalgrid.retrieval.scorers.sets import Sets
from goalgrid.runners.selftest.encoder_check import ALIKE, SEED, Broken, check_restored, learning_in

DIM = 6
"""Of the vectors that are checked."""
REGIONS, WORDS = (5, 3, 5, 1), (4, 1, 2)
"""Vectors of the images and of the captions that are checked."""


def shape(name: str) -> str:
    """A finite score of each image with each caption."""
    scores = _scorer(name)(*_sets())  # the scorer itself says so when the shape is another
    if not scores.isfinite().all():
        raise Broken("a score is not finite")
    return f"({len(REGIONS)}, {len(WORDS)}) for {len(REGIONS)} images and {len(WORDS)} captions"


def gradient(name: str) -> str:
    """The gradient of vectors equals finite differences, in float64; every learnt weight gets a finite gradient."""
    scorer, (images, texts) = _scorer(name).double().eval(), _sets(torch.float64)

    def score(regions: Tensor, words: Tensor) -> Tensor:
        return scorer(Sets(regions, images.sizes), Sets(words, texts.sizes))

    given = images.vectors.requires_grad_(), texts.vectors.requires_grad_()
    if not torch.autograd.gradcheck(score, given, raise_exception=False):
        raise Broken("it is no derivative of the scores. A detached part is the usual cause")
    scores = score(*given)
    factors = torch.randn(scores.shape, generator=torch.Generator().manual_seed(SEED), dtype=scores.dtype)
    (scores * factors).sum().backward()
    learning = learning_in(scorer)
    return "equals finite differences" + f", and is finite for all {learning} weights" * bool(learning)


@torch.no_grad()
def permutation(name: str) -> str:
    """Images and captions in another order have the same scores, and a second call gives them again."""
    scorer, (images, texts) = _scorer(name).eval(), _sets()
    scores = scorer(images, texts)
    rows, columns = torch.arange(len(REGIONS)).flip(0), torch.arange(len(WORDS)).flip(0)
    _alike("at the second call", scorer(images, texts), scores)
    _alike("with the images in another order", scorer(images[rows], texts)[rows], scores)
    _alike("with the captions in another order", scorer(images, texts[columns])[:, columns], scores)
    return "the order of images and captions changes nothing"


@torch.no_grad()
def batch(name: str) -> str:
    """In evaluation, an image and a caption have the same score alone as among others: goalgrid ranks by tiles."""
    scorer, (images, texts) = _scorer(name).eval(), _sets()
    scores = scorer(images, texts)
    alone = torch.stack(
        [
            torch.cat([scorer(images[i : i + 1], texts[t : t + 1])[0] for t in range(len(WORDS))])
            for i in range(len(REGIONS))
        ]
    )
    _alike("alone in a batch", alone, scores)
    return "a score does not depend on the batch"


@torch.no_grad()
def masks(name: str) -> str:
    """Padding counts for nothing: more zeros behind the end of a set change no score."""
    scorer, (images, texts) = _scorer(name).eval(), _sets()
    scores = scorer(images, texts)
    wider = [Sets(pad(sets.vectors, (0, 0, 0, 3)), sets.sizes) for sets in (images, texts)]
    _alike("with more zeros behind an image's last vector", scorer(wider[0], texts), scores)
    _alike("with more zeros behind a caption's last word", scorer(images, wider[1]), scores)
    return "zeros behind the end of a set count for nothing"


def half_precision(name: str) -> str:
    """Vectors rounded to 16 bits, random or all alike, give finite scores and gradients."""
    scorer = _scorer(name).eval()
    images, texts = _sets()
    one = torch.eye(DIM)[0]  # so that products are exactly 1
    cases = {"random": (images, texts), "all in one point": (_filled(images, one), _filled(texts, one))}
    for dtype in (torch.bfloat16, torch.float16):
        for what, sets in cases.items():
            given = [part.vectors.to(dtype).requires_grad_() for part in sets]
            scores = scorer(*(Sets(vectors, part.sizes) for vectors, part in zip(given, sets, strict=True)))
            if not scores.isfinite().all():
                raise Broken(f"{dtype} vectors, {what}: a score is not finite")
            (scores * torch.linspace(1, 2, scores.numel()).view_as(scores)).sum().backward()
            if any(vectors.grad is not None and not vectors.grad.isfinite().all() for vectors in given):
                raise Broken(f"{dtype} vectors, {what}: the gradient is not finite")
    return "finite for bfloat16 and float16"


def weights(name: str) -> str:
    """Another scorer that takes the weights gives the same scores, as after a checkpoint."""
    return check_restored(_scorer(name), _scorer(name, SEED + 1), _sets(), "scores")


OF_SCORERS: dict[str, Callable[[str], str]] = {
    "shape": shape,
    "gradient": gradient,
    "permutation": permutation,
    "batch": batch,
    "masks": masks,
    "half precision": half_precision,
    "weights": weights,
}


def _scorer(name: str, seed: int = SEED) -> OwnScorer:
    """The scorer, with the default of each parameter."""
    torch.manual_seed(seed)
    return OwnScorer(OwnScorerSettings.model_validate({"kind": "own", "name": name}), DIM)


def _sets(dtype: torch.dtype = torch.float32) -> tuple[Sets, Sets]:
    """Images and captions of several sizes: random unit vectors, and zeros behind them."""
    random = torch.Generator().manual_seed(SEED)

    def random_sets(sizes: tuple[int, ...]) -> Sets:
        vectors = normalize(torch.randn(len(sizes), max(sizes), DIM, generator=random, dtype=torch.float64), dim=-1)
        counts = torch.tensor(sizes)
        return Sets((vectors * (torch.arange(max(sizes)) < counts[:, None])[..., None]).to(dtype), counts)

    return random_sets(REGIONS), random_sets(WORDS)


def _filled(sets: Sets, vector: Tensor) -> Sets:
    """The same sets, with this vector for each of their vectors."""
    present = (torch.arange(sets.vectors.shape[1]) < sets.sizes[:, None])[..., None]
    return Sets(present * vector, sets.sizes)


def _alike(what: str, scores: Tensor, expected: Tensor) -> None:
    off = float((scores - expected).abs().max() / expected.abs().max())
    if not off <= ALIKE:
        raise Broken(f"{what}, a pair has another score: off by {off:.1e} of the largest score")
