"""Pictures as pixels: views in evaluation and training, and files that cannot be read."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from goalgrid.grid.settings.image_views import View
from goalgrid.retrieval.data import images
from goalgrid.retrieval.data.check import look_at
from goalgrid.retrieval.data.file_slice import FileSlice
from goalgrid.retrieval.data.images import ImageFiles, pixels_of
from goalgrid.retrieval.data.picture_files import opened
from goalgrid.retrieval.splits.pairs import DataError


@pytest.fixture
def files(tmp_path: Path) -> list[FileSlice]:
    """Three pictures of noise, each of another shape."""
    rng = np.random.default_rng(0)
    paths = [tmp_path / f"{name}.png" for name in "abc"]
    for path, (width, height) in zip(paths, [(40, 30), (30, 60), (32, 32)], strict=True):
        Image.fromarray(rng.integers(0, 255, (height, width, 3), dtype=np.uint8)).save(path)
    return [*map(FileSlice, paths)]


ROWS = np.array([1, 0, 2, 1])
RANDOM = View(16, "centre-crop", "resized-crop", flip=True)


def test_a_square_view_squeezes_the_whole_picture(files: list[FileSlice]) -> None:
    pixels = ImageFiles(files, View(16)).gather(ROWS)
    assert pixels.shape == (4, 3, 16, 16)
    with Image.open(files[0].path) as picture:
        expected = np.asarray(picture.resize((16, 16), Image.Resampling.BILINEAR))
    assert (pixels[1].permute(1, 2, 0).numpy() == expected).all()


@pytest.mark.parametrize(("width", "height"), [(640, 480), (224, 500), (300, 300)])
def test_a_centre_crop_is_resize_and_crop_in_one(width: int, height: int) -> None:
    """Literal: shorter side to 256, centre 224 x 224, up to the rounding of the resized sides."""
    x, y = np.meshgrid(np.linspace(0, 255, width), np.linspace(0, 255, height))
    picture = Image.fromarray(np.stack([x, y, x], axis=-1).astype(np.uint8))
    scale = 256 / min(width, height)
    resized = picture.resize((round(width * scale), round(height * scale)), Image.Resampling.BILINEAR)
    left, top = (resized.width - 224) // 2, (resized.height - 224) // 2
    expected = np.asarray(resized.crop((left, top, left + 224, top + 224))).astype(int)
    ours = pixels_of(picture, View(224, "centre-crop")).astype(int)
    assert np.abs(ours - expected).max() <= 2


def test_training_views_depend_on_the_draw_and_the_place_alone(files: list[FileSlice]) -> None:
    alone, many = ImageFiles(files, RANDOM, workers=1), ImageFiles(files, RANDOM, workers=4)
    first = alone.gather(ROWS, 7)
    assert first.equal(many.gather(ROWS, 7))
    assert first[:2].equal(many.gather(ROWS[:2], 7))
    assert not first.equal(many.gather(ROWS, 8))
    assert not first[0].equal(first[3]), "the same picture twice in a batch is seen twice"


def test_a_part_of_a_batch_is_as_in_the_whole(files: list[FileSlice]) -> None:
    images, part = ImageFiles(files, RANDOM), slice(1, 3)
    for draw in (None, 7):
        assert images.gather(ROWS, draw, part).equal(images.gather(ROWS, draw)[part])


def test_evaluation_views_are_the_same_each_time(files: list[FileSlice]) -> None:
    ours = ImageFiles(files, RANDOM)
    assert ours.gather(ROWS).equal(ours.gather(ROWS))


@pytest.mark.parametrize("augmentation", ["resized-crop", "scale-crop", "side-crop", "rand-augment"])
@pytest.mark.parametrize(("width", "height"), [(40, 30), (400, 20), (20, 400)])
def test_crops_stay_inside_and_within_their_bounds(augmentation: str, width: int, height: int) -> None:
    view = View(8, "square", augmentation)  # type: ignore[arg-type]
    for seed in range(200):
        left, top, right, bottom = images._crop(view, width, height, np.random.default_rng(seed))
        assert 0 <= left < right <= width + 1e-9
        assert 0 <= top < bottom <= height + 1e-9
        w, h = right - left, bottom - top
        if augmentation == "scale-crop":
            assert 0.6 * width <= w <= width
            assert w / h == pytest.approx(width / height)
        elif augmentation == "side-crop":
            assert 0.6 * width <= w <= width
            assert 0.6 * height <= h <= height
        else:
            assert 3 / 4 - 1e-9 <= w / h <= 4 / 3 + 1e-9


@pytest.mark.parametrize(
    ("augmentation", "least"),
    [("resized-crop", 0.08), ("rand-augment", 0.5), ("scale-crop", 0.36), ("side-crop", 0.36)],
)
def test_crops_keep_as_little_of_the_area_as_the_papers_and_as_much_as_all(augmentation: str, least: float) -> None:
    view, shares = View(8, "square", augmentation), []  # type: ignore[arg-type]
    for seed in range(500):
        left, top, right, bottom = images._crop(view, 40, 40, np.random.default_rng(seed))
        shares.append((right - left) * (bottom - top) / 1600)
    assert least <= min(shares) < least + 0.05
    assert 0.95 < max(shares) <= 1 + 1e-9


def test_flipping_mirrors_about_half(files: list[FileSlice]) -> None:
    plain, mirrored = ImageFiles(files, View(16)), ImageFiles(files, View(16, flip=True))
    original = plain.gather(np.zeros(200, dtype=int))
    views = mirrored.gather(np.zeros(200, dtype=int), 3)
    flipped = [view.flip(-1).equal(one) for view, one in zip(views, original, strict=True)]
    same = [view.equal(one) for view, one in zip(views, original, strict=True)]
    assert sum(flipped) + sum(same) == 200
    assert 70 < sum(flipped) < 130


def test_keeping_decoded_images_changes_nothing(files: list[FileSlice], monkeypatch: pytest.MonkeyPatch) -> None:
    kept = ImageFiles(files, View(16))
    monkeypatch.setattr(images, "KEPT_BYTES", 0)
    read = ImageFiles(files, View(16))
    assert kept.gather(ROWS).equal(read.gather(ROWS))
    assert kept.gather(ROWS).equal(read.gather(ROWS))


def test_an_unreadable_image_is_named(files: list[FileSlice]) -> None:
    files[0].path.write_bytes(files[0].path.read_bytes()[:40])
    files[2].path.unlink()
    ours = ImageFiles(files, View(16))
    with pytest.raises(DataError, match=r"image .*a\.png cannot be read"):
        ours.gather(np.array([0]))
    with pytest.raises(DataError, match=r"image .*c\.png is missing"):
        ours.gather(np.array([2]))


def test_a_picture_of_too_many_pixels_is_named_with_the_remedy(tmp_path: Path) -> None:
    file = tmp_path / "huge.png"
    Image.new("1", (14_000, 14_000)).save(file)
    with pytest.raises(DataError, match=r"image .*huge\.png is too large to be read: .*196000000.* Save it at a lower"):
        opened(FileSlice(file))
    [problem], _ = look_at([FileSlice(file)])
    assert "Save it at a lower resolution" in str(problem)
