"""Two-stage ranks equal a literal double loop; the quick scores of pairs equal the fusion encoder's own."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from goalgrid.grid.settings.model import ModelSettings
from goalgrid.retrieval.components.xvlm import rerank
from goalgrid.retrieval.components.xvlm.network import Xvlm
from goalgrid.retrieval.evaluation import rank_in_folds
from tests.retrieval.components.xvlm.test_xvlm import MODEL, WORDS

IMAGES, TEXTS, K = 8, 19, 3


@dataclass(frozen=True, eq=False)
class Split:
    """Images and captions as X-VLM reads them, and what it makes of them."""

    model: Any
    tokens: Tensor
    ids: Tensor
    lengths: Tensor
    owners: np.ndarray

    @property
    def vectors(self) -> tuple[Tensor, Tensor]:
        return torch.nn.functional.normalize(self.model.image.project(self.tokens[:, 0])), self.model.embed_texts(
            self.ids, self.lengths
        )

    def quick(self, pairs: np.ndarray) -> np.ndarray:
        """Scores of pairs, by what the evaluation does."""
        model = self.model

        def states_of(rows: Tensor) -> Tensor:
            longest = int(self.lengths[rows].max())
            states: Tensor = model.text.states(self.ids[rows, :longest], self.lengths[rows])
            return states

        captions = rerank.PackedStates.of(model.fusion, self.lengths, states_of, batch=5)
        return rerank.pair_scores(model.fusion, captions, self.tokens.split(5), pairs)

    @cached_property
    def plain(self) -> np.ndarray:
        """The score of every pair, padded to the longest caption, by the fusion encoder itself."""
        return np.array([[self._of_pair(i, t) for t in range(TEXTS)] for i in range(IMAGES)])

    def _of_pair(self, image: int, caption: int) -> float:
        row = slice(caption, caption + 1)
        states = self.model.text.states(self.ids[row], self.lengths[row])
        return float(self.model.fusion(states, self.lengths[row], self.tokens[image : image + 1])[0, 1])


@pytest.fixture(scope="module", params=[1, 3])
def split(request: pytest.FixtureRequest) -> Split:
    """With a single layer, the last layer is the first."""
    content = {**MODEL, "fusion": {"kind": "x-vlm", "weights": "random", "layers": request.param}}
    model: Any = Xvlm(ModelSettings.model_validate(content), (3, 64, 64), WORDS, seed=0).eval()
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for weight in model.parameters():
            weight += 0.2 * torch.randn(weight.shape, generator=generator)
    lengths = torch.randint(2, 9, (TEXTS,), generator=generator)
    ids = torch.randint(1, WORDS, (TEXTS, 9), generator=generator) * (torch.arange(9) < lengths[:, None])
    tokens = torch.randn(IMAGES, 5, model.image.backbone.width, generator=generator)
    owners = np.random.default_rng(0).permutation(np.r_[np.arange(IMAGES), np.arange(TEXTS - IMAGES) % IMAGES])
    return Split(model, tokens, ids, lengths, owners)


@torch.inference_mode()
def test_quick_scores_equal_the_fusion_encoders(split: Split, monkeypatch: pytest.MonkeyPatch) -> None:
    pairs = np.sort(np.random.default_rng(1).choice(IMAGES * TEXTS, 90, replace=False))
    expected = split.plain.ravel()[pairs]
    np.testing.assert_allclose(split.quick(pairs), expected, atol=1e-5)
    monkeypatch.setattr(rerank, "TOKENS", 16)  # many parts of an image's captions
    np.testing.assert_allclose(split.quick(pairs), expected, atol=1e-5)


@torch.inference_mode()
def test_two_stage_ranks_equal_the_literal_double_loop(split: Split) -> None:
    image, text = split.vectors
    ways, asked = (None, 4), list[np.ndarray]()

    def score(pairs: np.ndarray) -> np.ndarray:
        asked.append(pairs)
        return split.quick(pairs)

    first = [rank_in_folds(image, text, split.owners, fold) for fold in ways]
    lists = [rerank.folds_of(image, text, split.owners, K, fold) for fold in ways]
    found = rerank.two_stage_ranks(first, lists, split.owners, score, K)
    for fold, ranks in zip(ways, found, strict=True):
        i2t, t2i = literal(split, image @ text.T, fold or IMAGES)
        assert ranks.i2t.tolist() == i2t
        assert ranks.t2i.tolist() == t2i
        metrics = ranks.metrics()
        assert sorted(metrics) == sorted([*(f"{way}_r{k}" for way in ("i2t", "t2i") for k in (1, 5, 10)), "rsum"])
        assert ranks.similarities == first[ways.index(fold)].similarities
    assert found[1].metrics()["i2t_r1"] == pytest.approx(100 * np.mean(found[1].i2t < 1))
    (pairs,) = asked
    assert len(np.unique(pairs)) == len(pairs) < IMAGES * TEXTS


def literal(split: Split, similarity: Tensor, fold: int) -> tuple[list[int], list[int]]:
    """Rank of each query's first right answer among its K best, K where none is right."""
    i2t, t2i = [K] * IMAGES, [K] * TEXTS
    for start in range(0, IMAGES, fold):
        images = [image for image in range(IMAGES) if start <= image < start + fold]
        captions = [caption for caption in range(TEXTS) if split.owners[caption] in images]
        for image in images:
            best = sorted(captions, key=lambda caption: -float(similarity[image, caption]))[:K]
            best.sort(key=lambda caption: -split.plain[image, caption])
            i2t[image] = next((rank for rank, caption in enumerate(best) if split.owners[caption] == image), K)
        for caption in captions:
            best = sorted(images, key=lambda image: -float(similarity[image, caption]))[:K]
            best.sort(key=lambda image: -split.plain[image, caption])
            t2i[caption] = next((rank for rank, image in enumerate(best) if image == split.owners[caption]), K)
    return i2t, t2i
