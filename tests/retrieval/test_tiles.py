"""Tiles of the product cover it once, right answers first."""

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from goalgrid.retrieval.evaluation import GRAIN, tiles


@given(st.integers(1, 60), st.integers(1, 150), st.integers(1, 80), st.integers(0, 99))
@settings(max_examples=60)
def test_every_pair_stands_in_one_tile_and_right_ones_come_first(
    images: int, texts: int, chunk: int, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    owner = torch.from_numpy(rng.integers(0, images, texts))
    image, text = torch.from_numpy(rng.normal(size=(images, 4))), torch.from_numpy(rng.normal(size=(texts, 4)))
    order = torch.argsort(owner, stable=True)
    found, times = torch.empty(images, texts, dtype=torch.float64), torch.zeros(images, texts)
    right = torch.zeros(images, texts, dtype=torch.bool)
    began_wrong = False
    for tile in tiles(image, text, order, owner[order], chunk):
        assert not (began_wrong and tile.right is not None)
        began_wrong = tile.right is None
        found[tile.images, tile.texts] = tile.sim
        times[tile.images, tile.texts] += 1
        if tile.right is not None:
            right[tile.images, tile.texts] = tile.right
    assert bool((times == 1).all())
    assert torch.allclose(found, image @ text[order].T)
    assert torch.equal(right, owner[order] == torch.arange(images)[:, None])


def test_a_tile_is_no_larger_than_asked() -> None:
    owner = torch.arange(100).repeat_interleave(5)
    image, text = torch.eye(100), torch.eye(100)[owner]
    shapes = [tuple(tile.sim.shape) for tile in tiles(image, text, torch.arange(500), owner, 2 * GRAIN)]
    assert len(shapes) == 16
    assert max(shapes) == (32, 160)
