"""The photographs behind features are those of the annotated images with the same captions."""

import numpy as np

from retrieval.data.photographs import _by_captions
from retrieval.splits.pairs import Split


def test_an_image_is_known_by_its_captions_in_any_order() -> None:
    captions, owners = ["a dog", "a cat", "grass", "A dog runs."], np.array([0, 0, 1, 1])
    order = [3, 1, 0, 2]
    plain = _by_captions(Split(None, captions, owners), 2)  # type: ignore[arg-type]
    mixed = _by_captions(Split(None, [captions[row] for row in order], owners[order]), 2)  # type: ignore[arg-type]
    assert plain == mixed
