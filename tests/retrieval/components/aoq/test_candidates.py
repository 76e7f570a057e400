"""Candidates for negatives of a whole split, against a ranking row by row, and what is refused."""

from pathlib import Path

import numpy as np
import pytest
import torch

from goalgrid.retrieval.components.aoq import candidates as module
from goalgrid.retrieval.components.aoq.candidates import Candidates, rank
from goalgrid.retrieval.features import Bank
from goalgrid.retrieval.splits.pairs import DataError, Split

OWNERS = np.array([0, 1, 1, 2, 3, 3, 3, 4, 5, 5])


@pytest.fixture
def split(tmp_path_factory: pytest.TempPathFactory) -> Split:
    path = tmp_path_factory.mktemp("images") / "images.npy"
    np.save(path, np.zeros((6, 8), np.float16))
    return Split(Bank(path, 1), [""] * len(OWNERS), OWNERS)


def vectors(count: int, seed: int) -> torch.Tensor:
    return torch.nn.functional.normalize(torch.randn(count, 8, generator=torch.Generator().manual_seed(seed)), dim=1)


def test_candidates_equal_the_literal_ranking_also_after_an_interruption(
    tmp_path: Path, split: Split, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "SCORES", 20)  # blocks of two images, and of three captions
    image, text = vectors(6, 0), vectors(10, 1)
    beats: list[int] = []

    def beat() -> None:
        beats.append(0)
        if len(beats) in (2, 5):
            raise KeyboardInterrupt

    for _ in range(2):
        with pytest.raises(KeyboardInterrupt):
            rank(tmp_path, image, text, OWNERS, beat)
    rank(tmp_path, image, text, OWNERS, beat)
    assert len(beats) == 3 + 4
    found = Candidates.open(tmp_path, split)
    sim = (image @ text.T).numpy()
    for row in range(6):
        others = [column for column in np.argsort(-sim[row]) if OWNERS[column] != row]
        assert found.captions[row].tolist() == others[:7]
    for column in range(10):
        others = [row for row in np.argsort(-sim[:, column]) if row != OWNERS[column]]
        assert found.images[column].tolist() == others[:5]


def test_a_draw_takes_the_same_place_for_both_directions(split: Split) -> None:
    captions, images = np.arange(6)[:, None] * 0 + np.arange(10), np.arange(10)[:, None] * 0 + np.arange(2)
    found = Candidates(captions, images, OWNERS, "")
    owners, texts = np.tile(OWNERS, 50), np.tile(np.arange(10), 50)
    (drawn_images, images_of_texts), (drawn_texts, texts_of_images) = found.draw(owners, texts, seed=4)
    assert set(drawn_texts.tolist()) == set(range(10))  # its place is the caption's row here
    assert drawn_images.tolist() == (drawn_texts // 5).tolist()
    assert images_of_texts.tolist() == OWNERS[drawn_texts].tolist()
    assert OWNERS[texts_of_images].tolist() == drawn_images.tolist()
    assert {1, 2} <= set(texts_of_images.tolist())
    assert np.array_equal(found.draw(owners, texts, seed=4)[1], [drawn_texts, texts_of_images])


def test_a_draw_is_one_of_the_300_first_captions_and_of_the_60_first_images() -> None:
    """AOQ draws n below 300, for an image candidate n, for a caption candidate n / 5."""
    owners = np.repeat(np.arange(600), 5)
    captions, images = (np.tile(np.arange(width), (count, 1)) for width, count in ((2000, 600), (400, 3000)))
    (drawn_images, _), (drawn_texts, _) = Candidates(captions, images, owners, "").draw(owners, np.arange(3000), seed=1)
    assert set(drawn_texts.tolist()) == set(range(300))
    assert set(drawn_images.tolist()) == set(range(60))


@pytest.mark.parametrize(
    ("i2t", "t2i", "message"),
    [
        (None, np.zeros((10, 2), np.int32), r"must contain exactly one file i2t\*\.npy.*found: none"),
        (np.zeros((5, 2), np.int32), np.zeros((10, 2), np.int32), "i2t_f30k.npy has candidates for 5 rows.* has 6"),
        (np.zeros((6, 2), np.int32), np.full((10, 2), 6, np.int32), "t2i_f30k.npy names row 6; .* rows 0 to 5"),
        (np.zeros((6, 2), np.float32), np.zeros((10, 2), np.int32), "holds float32 of shape"),
    ],
)
def test_candidates_of_another_split_are_refused(
    tmp_path: Path, split: Split, i2t: np.ndarray | None, t2i: np.ndarray, message: str
) -> None:
    for name, array in (("i2t", i2t), ("t2i", t2i)):
        if array is not None:
            np.save(tmp_path / f"{name}_f30k.npy", array)
    with pytest.raises(DataError, match=message):
        Candidates.open(tmp_path, split)


@pytest.mark.parametrize(("name", "row"), [("i2t", 3), ("t2i", 7)])
def test_a_candidate_of_the_rows_own_image_is_refused(tmp_path: Path, split: Split, name: str, row: int) -> None:
    """Its own caption as a hard negative of an image: the training would push away what it pulls."""
    files = {"i2t": np.array([[1], [3], [0], [0], [0], [0]]), "t2i": (OWNERS[:, None] + 1) % 6}
    for file, array in files.items():
        np.save(tmp_path / f"{file}.npy", array)
    Candidates.open(tmp_path, split)
    files[name][row] = 4 if name == "i2t" else OWNERS[row]
    np.save(tmp_path / f"{name}.npy", files[name])
    with pytest.raises(
        DataError, match=rf"{name}.npy, row {row} \(from 0\): a candidate belongs to the row's own image"
    ):
        Candidates.open(tmp_path, split)


@pytest.mark.parametrize("row", [-1, 10])
def test_a_row_anywhere_in_the_candidates_is_one_of_the_split(tmp_path: Path, row: int) -> None:
    """A file of AOQ has many rows; what names no row of the split would be another row, or end the training."""
    owners = np.arange(10).repeat(60)
    split = Split(np.zeros((10, 3)), [f"caption {place}" for place in range(600)], owners)  # type: ignore[arg-type]
    i2t, t2i = np.zeros((10, 2), np.int32), np.zeros((600, 2), np.int32)
    t2i[300] = row
    np.save(tmp_path / "i2t_f30k.npy", i2t)
    np.save(tmp_path / "t2i_f30k.npy", t2i)
    with pytest.raises(DataError, match=f"t2i_f30k.npy names row {row}; the training split has rows 0 to 9"):
        Candidates.open(tmp_path, split)
