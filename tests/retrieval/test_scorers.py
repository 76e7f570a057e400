"""Scorers of sets equal the published loops, in scores and gradients, and in any batch."""

import copy
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import normalize

from goalgrid import objectives
from goalgrid.grid.objectives import OURS
from goalgrid.grid.settings import components
from goalgrid.grid.settings.scorers import BfanSettings, SafSettings, ScanSettings, SgrSettings
from goalgrid.retrieval.scorers.cross_attention import SetScorer
from goalgrid.retrieval.scorers.sets import TokenSets, gathered
from goalgrid.retrieval.scorers.similarity import VALUES
from tests.cases import every
from tests.retrieval import literal_scorers

DIM = 24
SCAN = [
    ScanSettings(kind="scan", direction=direction, pooling=pooling, sharpness=sharpness, lse_sharpness=6.0)
    for direction, sharpness in (("t2i", 9.0), ("i2t", 4.0))
    for pooling in ("mean", "lse", "max", "sum")
]
BFAN = [BfanSettings(kind="bfan", focal="equal"), BfanSettings(kind="bfan", focal="prob")]
ATTENTION = [*SCAN, *BFAN]
SGRAF = [SgrSettings(kind="sgr", width=12), SafSettings(kind="saf", width=12)]
ALL = [*ATTENTION, *SGRAF]
Drawn = tuple[list[Tensor], list[Tensor]]


of_all = every("settings", ALL)
of_attention = every("settings", ATTENTION)
of_weights = every("settings", SGRAF)


def scorer_of(settings: Any, regions: int = 7) -> SetScorer:
    torch.manual_seed(0)
    scorer = components.loaded(settings.network)(settings, regions, DIM).eval()
    for bias in (weight for name, weight in scorer.named_parameters() if name.endswith("bias")):
        nn.init.uniform_(bias, -0.2, 0.2)
    return scorer


def sets_of(scorer: SetScorer, given: "Drawn") -> tuple[TokenSets, TokenSets]:
    """The drawn images and captions, with what the scorer reads of the whole."""
    return scorer.image_whole(padded(given[0])), scorer.text_whole(padded(given[1]))


def drawn(kind: torch.dtype, regions: list[int], words: list[int], seed: int = 0) -> Drawn:
    """Unit vectors of images with so many regions and captions with so many words, alike enough to attend."""
    generator = torch.Generator().manual_seed(seed)
    shared = torch.randn(DIM, generator=generator, dtype=torch.float64)

    def sets(sizes: list[int]) -> list[Tensor]:
        vectors = [torch.randn(size, DIM, generator=generator, dtype=torch.float64) + 0.5 * shared for size in sizes]
        return [normalize(part, dim=1).to(kind).requires_grad_() for part in vectors]

    return sets(regions), sets(words)


def padded(parts: list[Tensor]) -> TokenSets:
    return TokenSets(
        torch.nn.utils.rnn.pad_sequence(parts, batch_first=True), torch.tensor([len(part) for part in parts])
    )


def gradients(score: Tensor, given: Drawn, scorer: nn.Module | None = None) -> Tensor:
    """Of a weighted sum of the scores, with respect to all vectors and weights, in one."""
    own = [] if scorer is None else list(scorer.parameters())
    weight = torch.linspace(-1, 1, score.numel(), dtype=score.dtype).view_as(score)
    found = torch.autograd.grad(
        (weight * score).sum(), [*given[0], *given[1], *own], retain_graph=True, materialize_grads=True
    )
    return torch.cat([part.flatten() for part in found])


def close(ours: Tensor, theirs: Tensor, relative: float) -> None:
    assert float((ours - theirs).detach().abs().max() / theirs.detach().abs().max()) < relative


@of_attention
@every(("regions", "words"), [([7] * 5, [4, 1, 6, 4, 3]), ([7, 1, 5, 3], [2, 5, 1]), ([1, 1], [1, 1])])
@every(("kind", "score", "gradient"), [(torch.float64, 1e-12, 1e-10), (torch.float32, 1e-6, 1e-5)])
def test_scores_and_gradients_equal_the_published_loop(
    settings: Any, regions: list[int], words: list[int], kind: torch.dtype, score: float, gradient: float
) -> None:
    if isinstance(settings, BfanSettings) and 1 in regions + words:
        regions, words = ([size + 1 for size in sizes] for sizes in (regions, words))  # the loop divides 0 by 0
    given, scorer = drawn(kind, regions, words), scorer_of(settings)
    images, texts = (padded(part) for part in given)
    ours, theirs = scorer(images, texts), literal_scorers.scores(settings, *given)
    close(ours, theirs, score)
    close(gradients(ours, given), gradients(theirs, given), gradient)
    with torch.no_grad():
        close(scorer(images, texts), theirs, score)


@of_weights
@every("mode", ["training", "evaluation", "blocks of a pair"])
@every(("kind", "score", "gradient"), [(torch.float64, 1e-12, 1e-10), (torch.float32, 1e-6, 1e-5)])
def test_similarity_vectors_equal_the_published_loop(
    settings: Any, mode: str, kind: torch.dtype, score: float, gradient: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Scores, gradients of vectors and of weights, and running statistics; all without dropout."""
    settings = settings.model_copy(update={"dropout": 0.0})
    if mode == "blocks of a pair":
        monkeypatch.setitem(VALUES, "cpu", 1)
    given, scorer = drawn(kind, [7] * 5, [4, 1, 6, 4, 3]), scorer_of(settings).to(kind).train(mode == "training")
    other = copy.deepcopy(scorer)
    ours, theirs = scorer(*sets_of(scorer, given)), literal_scorers.sgraf(other, torch.stack(given[0]), given[1])
    close(ours, theirs, score)
    close(gradients(ours, given, scorer), gradients(theirs, given, other), gradient)
    for one, two in zip(scorer.buffers(), other.buffers(), strict=True):
        if one.numel() > 0 and (mode == "training" or not one.is_floating_point()):
            torch.testing.assert_close(one, two)


@of_all
def test_the_weights_that_figures_show_equal_the_published_attention(settings: Any) -> None:
    (image,), (text,) = drawn(torch.float64, [7], [5])
    shown = scorer_of(settings).double().looks(image, text)
    bfan = isinstance(settings, BfanSettings)
    expected = {}
    for direction, query, context in (("t2i", text, image), ("i2t", image, text)):
        if bfan or getattr(settings, "direction", "t2i") == direction:
            weights = literal_scorers.weights(query[None], context[None], settings.sharpness)
            weights = (literal_scorers.focal(weights, settings.focal) if bfan else weights)[0]
            expected[direction] = weights if direction == "t2i" else weights.T
    assert shown.keys() == expected.keys()
    for direction, weights in expected.items():
        close(shown[direction], weights, 1e-12)


@of_all
def test_pairs_that_are_scored_alone_have_the_same_scores_and_gradients(settings: Any) -> None:
    regions = [7] * 4 if settings in SGRAF else [7, 3, 5, 7]
    given, scorer = drawn(torch.float64, regions, [4, 2, 6, 2, 3]), scorer_of(settings).double()
    images, texts = sets_of(scorer, given)
    rows, columns = torch.tensor([0, 3, 3, 1, 2, 0, 0]), torch.tensor([4, 0, 0, 2, 1, 3, 4])
    ours, whole = scorer.pairs(images, texts, rows, columns), scorer(images, texts)[rows, columns]
    close(ours, whole, 1e-12)
    close(gradients(ours, given), gradients(whole, given), 1e-10)


@of_all
def test_a_score_is_the_same_in_any_batch(settings: Any) -> None:
    regions = [7] * 4 if settings in SGRAF else [7, 7, 4, 7]
    given, scorer = drawn(torch.float64, regions, [4, 9, 1, 6, 4]), scorer_of(settings).double()
    with torch.no_grad():
        images, texts = sets_of(scorer, given)
        whole = scorer(images, texts)
        order, other = torch.tensor([2, 0, 3, 1]), torch.tensor([4, 1, 0, 3, 2])
        close(scorer(images[order], texts[other]), whole[order][:, other], 1e-12)
        for row in range(4):
            for column in range(5):
                alone = scorer(*sets_of(scorer, ([given[0][row]], [given[1][column]])))
                close(alone, whole[row : row + 1, column : column + 1], 1e-12)


@of_all
@every("kind", [torch.float16, torch.bfloat16, torch.float32])
def test_uniform_attention_and_half_precision_are_finite(settings: Any, kind: torch.dtype) -> None:
    """Regions that are all alike, words that are all alike, and words at right angles to all regions."""
    alike = normalize(torch.ones(5, DIM), dim=1)
    across = torch.zeros(3, DIM)
    across[:, 0], across[:, 1] = 0.5**0.5, -(0.5**0.5)
    given = [part.to(kind).requires_grad_() for part in (alike, alike[:2], across, across[:1], alike[:1])]
    scorer = scorer_of(settings, 5)
    images, texts = sets_of(scorer, (given[:1] * 2, given[1:]))
    score = scorer(images, texts)
    assert score.dtype == torch.float32
    assert torch.isfinite(score).all()
    some = scorer.pairs(images, texts, torch.arange(2), torch.arange(2))
    found = torch.autograd.grad(score.sum() + some.sum(), given)
    assert all(bool(torch.isfinite(part).all()) for part in found)


@every("settings", BFAN)
def test_where_no_attention_stands_out_all_of_it_stays(settings: BfanSettings) -> None:
    """One region and one word: the published code divides 0 by 0."""
    (image,), (text,) = drawn(torch.float64, [1], [1])
    score = scorer_of(settings)(padded([image]), padded([text]))
    close(score[0, 0], 2 * torch.dot(image[0], text[0]), 1e-12)


@pytest.mark.gate
@of_all
def test_every_objective_has_finite_gradients_on_the_scores_of_every_scorer(settings: Any) -> None:
    """Scores of LSE and sums exceed 1, BFAN's reach 2, SGRAF's stay between 0 and 1."""
    given, scorer = drawn(torch.float32, [3] * 3, [2, 1, 2]), scorer_of(settings, 3).train()
    for name in OURS:
        objective, (images, texts) = objectives.build(name), sets_of(scorer, given)
        few = objective.learns_from_few and scorer.by_pair
        scores, again = scorer(images, texts), partial(scorer.pairs, images, texts) if few else None
        loss = objective.from_similarity(scores.detach() if few else scores, rescore=again)
        found = torch.autograd.grad(loss, [*given[0], *given[1]], materialize_grads=True)
        assert bool(torch.isfinite(torch.cat([loss[None], *(part.flatten() for part in found)])).all()), name


GOAL = [f"{pair}_{triplet}" for pair in objectives.GOAL_ROWS for triplet in objectives.GOAL_COLUMNS]


@every("variant", ["paper", "released"])
@every("name", [*GOAL, "triplet-hn", "unified", "selhn"])
def test_objectives_learn_the_same_from_mined_pairs_as_from_the_whole_matrix(name: str, variant: str) -> None:
    """With scores beyond 1: BFAN's reach 2."""
    settings = BfanSettings(kind="bfan", focal="prob")
    given, scorer = drawn(torch.float64, [5] * 6, [4, 3, 6, 4, 3, 2], seed=3), scorer_of(settings)
    objective = objectives.build(name, variant=variant)
    images, texts = (padded(part) for part in given)
    whole = objective.from_similarity(scorer(images, texts))
    expected = torch.autograd.grad(whole, [*given[0], *given[1]], allow_unused=True, retain_graph=True)
    again = partial(scorer.pairs, images, texts)
    scores = scorer(images, texts)
    some = objective.from_similarity(scores.detach() if objective.learns_from_few else scores, rescore=again)
    found = torch.autograd.grad(some, [*given[0], *given[1]], allow_unused=True)
    torch.testing.assert_close(some, whole)
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-12)


def test_dropped_regions_leave_the_others_in_their_order() -> None:
    values, present = torch.arange(6.0).view(1, 3, 2), torch.tensor([[False, True, True]])
    assert gathered(values, present).tolist() == [[[2, 3], [4, 5], [0, 0]]]
