"""Shrunk pictures: decoded once, as the picture resized, shared by trials, and refused where there are no files."""

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from goalgrid.grid.errors import UserError
from goalgrid.grid.settings.image_views import View
from goalgrid.retrieval.data import opening
from goalgrid.retrieval.data.file_slice import FileSlice
from goalgrid.retrieval.data.images import ImageFiles, pixels_of
from goalgrid.retrieval.shrunk import ShrunkImages, ShrunkPictures
from goalgrid.retrieval.splits.pairs import Pairs, Split

VIEW = View(16, "centre-crop", "resized-crop", flip=True)
CPU = torch.device("cpu")
SIDE = 19
"""ceil(1.15 x 16)."""


@pytest.fixture
def pairs(tmp_path: Path) -> Pairs:
    """Five pictures a split: wide, high, square, and two whose shorter side is below SIDE."""
    splits = []
    for split in "abc":
        files = [tmp_path / f"{split}{place}.png" for place in range(5)]
        for place, (file, size) in enumerate(zip(files, [(60, 40), (30, 71), (32, 32), (18, 40), (8, 8)], strict=True)):
            noise = np.random.default_rng(place).integers(0, 255, (*size[::-1], 3), dtype=np.uint8)
            Image.fromarray(noise).save(file)
        splits.append(Split(ImageFiles([*map(FileSlice, files)], VIEW), list("vwxyz"), np.arange(5)))
    return Pairs(*splits)


def test_views_are_those_of_the_picture_with_a_shorter_side_of_the_cache(pairs: Pairs, tmp_path: Path) -> None:
    cached, rows = ShrunkPictures("some", tmp_path / "cache", pairs, "print").load(CPU), np.array([3, 0, 1, 4, 2, 0])
    images = cached.train.images
    assert isinstance(images, ShrunkImages)
    assert isinstance(images.pixels, np.memmap)
    for draw in (None, 7):
        views = images.gather(rows, draw)
        for place, row in enumerate(rows):
            with Image.open(images.files[row].path) as picture:
                scale = min(1.0, SIDE / min(picture.size))
                size = tuple(round(side * scale) for side in picture.size)
                small = picture.resize(size, Image.Resampling.BICUBIC)  # type: ignore[arg-type]
            seen = pixels_of(small, VIEW, None if draw is None else np.random.default_rng([draw, place]))
            assert (views[place].permute(1, 2, 0).numpy() == seen).all()


def test_files_are_read_once_for_all_trials(pairs: Pairs, tmp_path: Path) -> None:
    first = ShrunkPictures("some", tmp_path / "cache", pairs, "print").load(CPU)
    for split in pairs.splits.values():
        assert isinstance(split.images, ImageFiles)
        for file in split.images.files:
            file.path.unlink()
    done: list[int] = []
    pictures = ShrunkPictures("some", tmp_path / "cache", pairs, "print")
    pictures.fill(CPU, done.append)
    assert done == []
    again = pictures.load(CPU)
    assert again.val.images.gather(np.arange(5), 3).equal(first.val.images.gather(np.arange(5), 3))
    assert pictures.key != ShrunkPictures("some", tmp_path, pairs, "other").key


def test_a_data_set_without_files_is_refused(tmp_path: Path) -> None:
    with pytest.raises(
        UserError, match=r'dataset\.cache = "shrunk" needs image files, and data set \'shapes\' has none'
    ):
        ShrunkPictures("shapes", tmp_path, opening.load("shapes", None, VIEW), "print").fill(CPU)
