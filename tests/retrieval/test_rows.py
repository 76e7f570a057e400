"""Rows of features that are repeated for each caption of an image, by literal lists."""

from pathlib import Path

import numpy as np
import pytest

from goalgrid.retrieval.data import opening, rows
from goalgrid.retrieval.data.content import content
from goalgrid.retrieval.data.rows import Rows

LENGTHS: dict[str, tuple[list[int], list[int]]] = {
    "two captions an image": ([2] * 12, [2] * 12),
    "MSR-VTT's twenty": ([20] * 6, [20] * 6),
    "any number": ([2, 5, 3, 7, 2, 4], [2, 5, 3, 7, 2, 4]),
    "one in ten has one caption": ([3, 2] * 9 + [1, 1], [3, 2] * 9 + [1, 1]),
    "three in twelve have one caption": ([3] * 9 + [1] * 3, []),
    "a row an image": ([1] * 12, []),
    "two equal images side by side": ([5] * 4 + [10] + [5] * 15, [5] * 21),
    "a longer one that is no multiple": ([5] * 19 + [7], [5] * 19 + [7]),
}
"""How often each row is in a file, and how often each image's row is taken to be repeated; none: rows are images."""


def written(root: Path, lengths: list[int]) -> None:
    """Three splits of features of this form, without ids; image i's are i + 1, and the split's number."""
    for number, split in enumerate(("train", "val", "test")):
        array = np.repeat(np.arange(1, len(lengths) + 1), lengths)[:, None] * np.array([[1.0, 0.0]]) + [0.0, number]
        np.save(root / f"{split}_ims.npy", array.astype(np.float32))
        (root / f"{split}_caps.txt").write_text("".join(f"caption {row}\n" for row in range(len(array))))


@pytest.mark.parametrize("name", LENGTHS)
def test_runs_of_equal_rows_are_images_where_nearly_all_are_longer_than_one(name: str, tmp_path: Path) -> None:
    lengths, expected = LENGTHS[name]
    written(tmp_path, lengths)
    held = content("mine", tmp_path, features=True)
    captions = sum(lengths)
    images = expected or [1] * captions
    assert held.sizes == tuple((split, len(images), captions) for split in ("train", "val", "test"))
    said = [problem.what for problem in held.problems if "as many rows as captions" in problem.what]
    assert len(said) == (not expected)
    for told in (held.repeats, None):
        pairs = opening.load("mine", tmp_path, None, repeats=told)
        owners = [image for image, count in enumerate(images) for _ in range(count)]
        assert pairs.test.image_of_text.tolist() == owners
        values = [image for image, count in enumerate(lengths, 1) for _ in range(count)]
        assert pairs.test.images.gather(pairs.test.image_of_text)[:, 0].tolist() == values


def test_an_opening_believes_the_content_and_reads_no_array(tmp_path: Path) -> None:
    written(tmp_path, [2] * 6)
    told = tuple((split, (3,) * 4) for split in ("train", "val", "test"))
    assert len(opening.load("mine", tmp_path, None, repeats=told).train.images) == 4


def test_rows_are_told_alike_in_any_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    array = np.random.default_rng(0).integers(0, 2, (40, 3)).astype(np.float16)
    whole = Rows.read(array)
    monkeypatch.setattr(rows, "BLOCK", 18)  # three rows
    parts = Rows.read(array)
    assert (parts.whole, parts.marks) == (whole.whole, whole.marks)
    assert str(Rows.from_text(str(whole))) == str(whole)
    for one in range(40):
        assert (whole.marks[one] == rows.ZEROS) == (not array[one].any())
        assert [mark == whole.marks[one] for mark in whole.marks] == (array == array[one]).all(axis=1).tolist()
