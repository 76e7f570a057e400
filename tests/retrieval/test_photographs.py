"""The photographs behind features are those of the annotated images with the same captions."""

from pathlib import Path

import numpy as np

from goalgrid.retrieval.data.photographs import _by_captions
from goalgrid.retrieval.data.precomp import Features
from goalgrid.retrieval.splits.pairs import Split


def test_an_image_is_known_by_its_captions_in_any_order() -> None:
    images = Features(Path("ims.npy"), np.zeros((2, 3), np.float32), np.arange(2))
    captions, owners = ["a dog", "a cat", "grass", "A dog runs."], np.array([0, 0, 1, 1])
    order = [3, 1, 0, 2]
    plain = _by_captions(Split(images, captions, owners), 2)
    assert plain == _by_captions(Split(images, [captions[row] for row in order], owners[order]), 2)
