"""The photographs behind features are those of the annotated images with the same captions."""

import numpy as np

from goalgrid.retrieval.data.photographs import _by_captions


def test_an_image_is_known_by_its_captions_in_any_order() -> None:
    captions, owners = ["a dog", "a cat", "grass", "A dog runs."], np.array([0, 0, 1, 1])
    order = [3, 1, 0, 2]
    assert _by_captions(captions, owners) == _by_captions([captions[row] for row in order], owners[order])
