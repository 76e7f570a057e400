"""Ranks by counting equal ranks by sorting; ties and collapsed models score chance."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn.functional import normalize

from goalgrid.grid.settings.scorers import ScanSettings
from goalgrid.retrieval.evaluation import (
    Ranks,
    chance_rsum,
    rank,
    rank_in_folds,
    recall,
    spread,
)
from goalgrid.retrieval.scorers.cross_attention import Scan
from goalgrid.retrieval.scorers.sets import TokenSets


def literal(sim: np.ndarray, image_of_text: np.ndarray) -> Ranks:
    """Loops over queries: wrong answers above the best right one, plus half of those equal to it."""
    images, texts = sim.shape
    i2t, t2i = [], []
    for i in range(images):
        right = [t for t in range(texts) if image_of_text[t] == i]
        best = max(sim[i, t] for t in right) if right else -np.inf
        wrong = [sim[i, t] for t in range(texts) if image_of_text[t] != i]
        i2t.append(sum(s > best for s in wrong) + sum(s == best for s in wrong) // 2)
    for t in range(texts):
        own = sim[image_of_text[t], t]
        wrong = [sim[i, t] for i in range(images) if i != image_of_text[t]]
        t2i.append(sum(s > own for s in wrong) + sum(s == own for s in wrong) // 2)
    return Ranks(np.array(i2t), np.array(t2i), similarities=literal_similarities(sim, image_of_text))


def literal_similarities(sim: np.ndarray, image_of_text: np.ndarray) -> dict[str, float]:
    """Loops over captions and directions; the hardest negative is of all other images' captions, or of all others."""
    positives, hardest = [], []
    for t, i in enumerate(image_of_text):
        others = [sim[i, other] for other in range(sim.shape[1]) if image_of_text[other] != i]
        for wrong in (others, [sim[other, t] for other in range(sim.shape[0]) if other != i]):
            positives.append(sim[i, t])
            hardest.append(max(wrong, default=-np.inf))
    differences = [abs(negative - positive) for negative, positive in zip(hardest, positives, strict=True)]
    return {name: sum(v) / len(v) for name, v in (("s_pos", positives), ("s_neg", hardest), ("delta_s", differences))}


@given(st.integers(1, 50), st.integers(1, 120), st.integers(1, 40), st.integers(0, 99), st.booleans())
@settings(max_examples=60)
def test_counting_equals_the_literal_loops(images: int, texts: int, chunk: int, seed: int, coarse: bool) -> None:
    rng = np.random.default_rng(seed)
    owner = rng.integers(0, images, texts)  # some images have no caption, others many, in any order
    a, b = rng.normal(size=(images, 3)), rng.normal(size=(texts, 3))
    if coarse:  # small integers: many exact ties, exact sums
        a, b = a.round(), b.round()
    image, text = torch.from_numpy(a), torch.from_numpy(b)
    ours, slow = rank(image, text, owner, chunk=chunk), literal((image @ text.T).numpy(), owner)
    assert ours.i2t.tolist() == slow.i2t.tolist()
    assert ours.t2i.tolist() == slow.t2i.tolist()
    assert ours.similarities == pytest.approx(slow.similarities)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_a_scorer_that_tells_nothing_apart_scores_chance_in_any_number_format(dtype: torch.dtype) -> None:
    """0.1 has no exact value in any of them, so that rounded beside unrounded scores would be above or below."""
    sets = TokenSets(torch.ones(40, 1, 1), torch.ones(40, dtype=torch.long))
    ranks = rank(sets, sets, np.arange(40), lambda i, t: torch.full((len(i), len(t)), 0.1, dtype=dtype), chunk=16)
    assert ranks.i2t.tolist() == ranks.t2i.tolist() == [39 // 2] * 40
    assert ranks.metrics()["rsum"] == 0


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_ranks_among_many_are_exact_in_any_number_format(dtype: torch.dtype) -> None:
    """A bfloat16 has no 597, so nothing may be counted in it."""
    image, text = torch.ones(2, 1, dtype=dtype), torch.ones(600, 1, dtype=dtype)
    text[-2], text[-1] = -1, 0  # the first image's caption is the last: above it are all but one
    assert rank(image, text, np.repeat([1, 0], [599, 1])).i2t[0] == 598


@given(st.integers(1, 50), st.integers(1, 120), st.integers(1, 40), st.integers(1, 1100), st.integers(0, 99))
@settings(max_examples=40)
def test_equal_vectors_tie_wherever_they_stand(images: int, texts: int, chunk: int, dim: int, seed: int) -> None:
    """Few vectors, many times: their single precision similarities must not depend on tile or place."""
    rng = np.random.default_rng(seed)
    vectors = rng.normal(size=(3, dim)).astype(np.float32)
    which_image, which_text, owner = (
        rng.integers(0, high, size) for high, size in ((3, images), (3, texts), (images, texts))
    )
    image, text = torch.from_numpy(vectors[which_image]), torch.from_numpy(vectors[which_text])
    among = vectors.astype(np.float64) @ vectors.astype(np.float64).T
    ours, slow = rank(image, text, owner, chunk=chunk), literal(among[which_image][:, which_text], owner)
    assert ours.i2t.tolist() == slow.i2t.tolist()
    assert ours.t2i.tolist() == slow.t2i.tolist()


def of_videos(sim: np.ndarray, there: np.ndarray) -> dict[str, float]:
    """As the code of CE: captions in slots, as many for each video, of which some are missing.

    A text's rank is the mean place of all videos with its own video's score. A video's is the best among its captions'
    mean places, missing captions last.

    Args:
        sim: videos by slots.
        there: which slots hold a caption.
    """
    videos, slots = sim.shape
    per_video = slots // videos

    def place(scores: np.ndarray, own: int) -> float:
        equal = np.flatnonzero(np.sort(scores)[::-1] == scores[own])
        return float(equal.mean())

    t2v = [place(sim[:, slot], slot // per_video) for slot in range(slots) if there[slot]]
    v2t = []
    for video in range(videos):
        scores = np.where(there, sim[video], -1e8)
        own = [slot for slot in range(video * per_video, (video + 1) * per_video) if there[slot]]
        v2t.append(min(place(scores, slot) for slot in own))
    found = {}
    for name, ranks in (("i2t", np.array(v2t)), ("t2i", np.array(t2v))):
        recalls = [100 * float((ranks == 0 if k == 1 else ranks < k).mean()) for k in (1, 5, 10)]
        found |= {f"{name}_r{k}": value for k, value in zip((1, 5, 10), recalls, strict=True)}
        found |= {f"{name}_meanr": float(ranks.mean()) + 1, f"{name}_gmean": float(np.prod(recalls) ** (1 / 3))}
        found[f"{name}_medr"] = float(np.median(ranks)) + 1
    return found


@given(st.integers(2, 30), st.integers(1, 5), st.integers(0, 99), st.booleans(), st.integers(3, 20))
@settings(max_examples=60)
def test_videos_rank_as_in_the_code_of_ce(videos: int, captions: int, seed: int, coarse: bool, chunk: int) -> None:
    """Missing captions; and among coarse scores ties, of captions of one video and of several, also for first place."""
    rng = np.random.default_rng(seed)
    there = rng.random(videos * captions) < 0.8
    there[::captions] = True
    a, b = rng.normal(size=(videos, 4)), rng.normal(size=(videos * captions, 4))
    if coarse:
        a, b = a.round(), b.round()
    owner = np.repeat(np.arange(videos), captions)[there]
    image, text = torch.from_numpy(a), torch.from_numpy(b)
    ranks = rank(image, text[torch.from_numpy(there)], owner, chunk=chunk, mean_places=True)
    theirs = of_videos((image @ text.T).numpy(), there)
    ours = {**ranks.metrics(), **ranks.further()}
    assert {name: ours[name] for name in theirs} == pytest.approx(theirs)
    rounded = rank(image, text[torch.from_numpy(there)], owner, chunk=chunk)
    assert np.floor(ranks.t2i).tolist() == rounded.t2i.tolist()
    assert rounded.i2t.dtype == rounded.t2i.dtype == np.int64, "images keep whole ranks"


def test_a_tie_for_the_first_place_is_a_miss_for_videos_and_a_hit_for_images() -> None:
    sim = torch.eye(4, dtype=torch.float64)
    sim[0, 1] = sim[1, 0] = 1
    videos, images = (rank(sim, torch.eye(4).double(), np.arange(4), mean_places=places) for places in (True, False))
    assert videos.i2t.tolist() == videos.t2i.tolist() == [0.5, 0.5, 0, 0]
    assert (videos.metrics()["i2t_r1"], images.metrics()["i2t_r1"]) == (50, 100)
    assert (videos.metrics()["i2t_medr"], images.metrics()["i2t_medr"]) == (1.25, 1)


def test_captions_of_one_video_that_tie_share_their_places_too() -> None:
    sim = torch.eye(3, dtype=torch.float64)[:, [0, 0, 1, 2]]
    ranks = rank(torch.eye(3).double(), sim.T, np.array([0, 0, 1, 2]), mean_places=True)
    assert (ranks.i2t.tolist(), ranks.t2i.tolist()) == ([0.5, 0, 0], [0, 0, 0, 0])


def test_a_perfect_model_scores_100() -> None:
    eye = torch.eye(20)
    ranks = rank(eye, eye.repeat_interleave(5, dim=0), np.repeat(np.arange(20), 5))
    assert ranks.metrics()["rsum"] == 600
    assert ranks.metrics()["i2t_medr"] == 1


def test_a_collapsed_model_scores_chance() -> None:
    ones = torch.ones(100, 4)
    metrics = rank(ones, ones.repeat_interleave(5, dim=0), np.repeat(np.arange(100), 5)).metrics()
    assert metrics["i2t_r1"] == metrics["t2i_r10"] == 0
    assert metrics["t2i_medr"] == 50
    assert spread(ones, ones) == 0


@pytest.mark.parametrize(("images", "captions"), [(60, 5), (250, 5), (500, 1)])
def test_a_model_that_knows_nothing_stays_below_the_rsum_of_chance(images: int, captions: int) -> None:
    owner, bound = np.repeat(np.arange(images), captions), chance_rsum(images, captions * images)
    for seed in range(20):
        generator = torch.Generator().manual_seed(seed)
        image, text = torch.randn(images, 8, generator=generator), torch.randn(len(owner), 8, generator=generator)
        for common in (0, 1000):  # far from the origin all directions are nearly equal: the model has collapsed
            assert rank(image + common, text + common, owner).metrics()["rsum"] <= bound


def test_the_rsum_of_chance_is_three_standard_deviations_above_what_random_rankings_have_on_average() -> None:
    images, captions, rng = 40, 5, np.random.default_rng(0)
    texts, draws = images * captions, 4000
    of_image = rng.permuted(np.tile(np.arange(texts), (draws, 1)), axis=1)[:, :captions].min(axis=1)
    of_text = rng.integers(images, size=draws)
    i2t, t2i = ((ranks[:, None] < np.array([1, 5, 10])).sum(axis=1) for ranks in (of_image, of_text))
    expected = i2t.mean() + t2i.mean() + 3 * np.sqrt((i2t.var() + t2i.var()) / images)
    assert chance_rsum(images, texts) == pytest.approx(100 * expected, rel=0.05)


def test_a_model_that_knows_a_little_is_above_the_rsum_of_chance() -> None:
    generator = torch.Generator().manual_seed(0)
    truth = torch.randn(250, 16, generator=generator)
    text = truth.repeat_interleave(5, dim=0) + 3 * torch.randn(1250, 16, generator=generator)
    metrics = rank(truth, text, np.repeat(np.arange(250), 5)).metrics()
    assert metrics["t2i_r1"] < 8
    assert metrics["rsum"] > chance_rsum(250, 1250)


def test_where_every_query_finds_its_answer_by_chance_the_rsum_of_chance_is_the_largest_there_is() -> None:
    assert chance_rsum(1, 1) == chance_rsum(1, 5) == chance_rsum(2, 10) == 600


def test_a_model_of_nan_scores_chance() -> None:
    lost = torch.full((100, 4), torch.nan)
    metrics = rank(lost, lost.repeat_interleave(5, dim=0), np.repeat(np.arange(100), 5)).metrics()
    assert metrics["i2t_r1"] == metrics["t2i_r10"] == 0
    assert metrics["t2i_medr"] == 50


def test_spread_equals_the_standard_deviation_of_the_whole_matrix() -> None:
    generator = torch.Generator().manual_seed(0)
    image, text = torch.randn(40, 8, generator=generator), torch.randn(90, 8, generator=generator)
    assert spread(image, text) == pytest.approx(float(np.std((image @ text.T).numpy())), rel=1e-5)
    assert spread(image, text, sample=30) == pytest.approx(spread(image, text), rel=0.2)


def test_an_image_without_a_caption_ranks_last() -> None:
    assert rank(torch.eye(3), torch.eye(3)[:2], np.array([0, 1])).i2t.tolist() == [0, 0, 2]


def test_the_chunk_changes_nothing() -> None:
    generator = torch.Generator().manual_seed(0)
    image, text = torch.randn(70, 8, generator=generator), torch.randn(350, 8, generator=generator)
    owner = np.repeat(np.arange(70), 5)
    whole = rank(image, text, owner, chunk=1000)
    for chunk in (16, 64):
        parts = rank(image, text, owner, chunk=chunk)
        assert parts.i2t.tolist() == whole.i2t.tolist()
        assert parts.t2i.tolist() == whole.t2i.tolist()


def test_recall_counts_ranks_below_k() -> None:
    assert recall(np.array([0, 1, 4, 5]), 5) == pytest.approx(75.0)


def test_fold_metrics_equal_the_literal_mean_over_folds() -> None:
    rng = np.random.default_rng(0)
    owner = rng.permutation(np.repeat(np.arange(12), 3))  # captions in any order
    image, text = torch.from_numpy(rng.normal(size=(12, 4))), torch.from_numpy(rng.normal(size=(36, 4)))
    ours = rank_in_folds(image, text, owner, 4)
    each = []
    for start in (0, 4, 8):
        inside = [t for t in range(36) if start <= owner[t] < start + 4]
        slow = literal((image[start : start + 4] @ text[inside].T).numpy(), owner[inside] - start)
        assert ours.i2t[start : start + 4].tolist() == slow.i2t.tolist()
        assert ours.t2i[inside].tolist() == slow.t2i.tolist()
        each.append(slow.metrics())
    for name, value in ours.metrics().items():
        assert value == pytest.approx(np.mean([metrics[name] for metrics in each]))


def test_five_equal_folds_have_the_metrics_of_one() -> None:
    rng = np.random.default_rng(0)
    image, text = torch.from_numpy(rng.normal(size=(10, 4))), torch.from_numpy(rng.normal(size=(50, 4)))
    one = rank(image, text, np.repeat(np.arange(10), 5))
    five = rank_in_folds(image.repeat(5, 1), text.repeat(5, 1), np.repeat(np.arange(50), 5), 10)
    assert five.metrics() == pytest.approx(one.metrics())
    assert five.i2t.tolist() == one.i2t.tolist() * 5


def test_smaller_folds_are_easier_and_without_folds_nothing_changes() -> None:
    generator = torch.Generator().manual_seed(0)
    image, text = torch.randn(50, 8, generator=generator), torch.randn(250, 8, generator=generator)
    owner = np.repeat(np.arange(50), 5)
    whole = rank(image, text, owner)
    assert rank_in_folds(image, text, owner, None).metrics() == whole.metrics()
    assert rank_in_folds(image, text, owner, 10).metrics()["rsum"] > whole.metrics()["rsum"]


def test_sets_are_ranked_by_their_scorer_in_tiles_and_in_folds() -> None:
    """The ranks of the whole matrix of scores, whatever the tile."""
    generator = torch.Generator().manual_seed(0)
    owner = np.repeat(np.arange(8), 3)
    image, text = (
        TokenSets(normalize(torch.randn(count, size, 6, generator=generator), dim=2), torch.full((count,), size))
        for count, size in ((8, 4), (24, 3))
    )
    scorer = Scan(ScanSettings(kind="scan", direction="t2i", sharpness=9), 36, 8)
    matrix = scorer(image, text).double().numpy()
    for chunk in (3, 100):
        ours, slow = rank(image, text, owner, scorer, chunk=chunk), literal(matrix, owner)
        assert (ours.i2t.tolist(), ours.t2i.tolist()) == (slow.i2t.tolist(), slow.t2i.tolist())
    folded = rank_in_folds(image, text, owner, 4, score=scorer)
    first = literal(matrix[:4, :12], owner[:12])
    assert (folded.i2t[:4].tolist(), folded.t2i[:12].tolist()) == (first.i2t.tolist(), first.t2i.tolist())
    assert ours.spread > 0
