"""How fast a core decodes: measured on pictures that are here, else of a table."""

from pathlib import Path

import pytest

from goalgrid.grid.settings.image_views import View
from goalgrid.planning.gpu.decoding import TABLE, decoding


def test_pictures_that_are_here_are_decoded_and_timed(few_pictures: Path) -> None:
    measured = decoding("few", few_pictures, View(32, augmentation="resized-crop", flip=True))
    assert measured.source in {f"measured on {count} images" for count in (16, 32, 40)}  # of 40 in the training split
    assert measured.seconds > 0
    assert measured.rate(3) == pytest.approx(3 * measured.rate(1))


def test_without_pictures_a_table_says_it() -> None:
    table = decoding("coco", None, View(512, augmentation="scale-crop"))
    assert (table.seconds, table.source) == (TABLE["scale-crop"], "640 x 480 images on an EPYC core")
