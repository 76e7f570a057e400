"""Picture files as phones, scanners and the web leave them: turned, transparent, deep; and all others as ever."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.cbook import get_sample_data
from PIL import Image, ImageOps

from goalgrid.retrieval.data.check import look_at
from goalgrid.retrieval.data.file_slice import FileSlice
from goalgrid.retrieval.data.picture_files import opened, read_as, size_of
from goalgrid.retrieval.splits.pairs import DataError

QUARTERS = np.kron([[10, 80, 150], [220, 50, 120]], np.ones((20, 20)))[..., None] * [1, 0.5, 0.25]
"""Six fields, 60 pixels wide and 40 high, none of which has the colour of another."""


def saved(path: Path, values: np.ndarray, mode: str | None = None, **options: Any) -> FileSlice:
    image = Image.fromarray(values)
    (image.convert(mode) if mode else image).save(path, **options)
    return FileSlice(path)


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("ending", ["jpg", "png", "webp", "tif"])
def test_a_picture_is_turned_as_exif_says(ending: str, orientation: int, tmp_path: Path) -> None:
    exif = Image.Exif()
    exif[0x112] = orientation
    file = saved(tmp_path / f"a.{ending}", QUARTERS.astype(np.uint8), exif=exif)
    with Image.open(file.path) as image:
        expected = np.asarray(ImageOps.exif_transpose(image).convert("RGB"))
    assert np.array_equal(np.asarray(opened(file)), expected)
    assert size_of(file) == (expected.shape[1], expected.shape[0])
    assert size_of(file) == ((60, 40) if orientation < 5 else (40, 60))
    assert read_as(file) == (() if orientation == 1 or ending == "tif" else ("turned",))  # Pillow turns a TIFF


@pytest.mark.parametrize("mode", ["RGBA", "LA", "P"])
def test_transparent_parts_are_seen_as_white(mode: str, tmp_path: Path) -> None:
    """Literal: colour times alpha, and white for the rest; the red below is never seen."""
    values = np.zeros((8, 8, 4), np.uint8)
    values[..., 0], values[..., 3] = 200, np.arange(64).reshape(8, 8) * 4
    file = saved(tmp_path / "a.png", values, None if mode == "P" else mode)
    if mode == "P":
        palette = Image.fromarray(np.arange(64, dtype=np.uint8).reshape(8, 8), "P")
        palette.putpalette([200, 0, 0] * 64)
        palette.save(file.path, transparency=bytes(range(0, 256, 4)))
    with Image.open(file.path) as image:
        colour, alpha = np.split(np.asarray(image.convert("RGBA")).astype(float), [3], axis=2)
    expected = colour * alpha / 255 + 255 - alpha
    assert np.abs(np.asarray(opened(file)) - expected).max() <= 1
    assert np.asarray(opened(file))[0, 0].tolist() == [255, 255, 255]
    assert read_as(file) == ("transparent",)


DEEP: dict[str, tuple[np.ndarray, float]] = {
    "16 bits": (np.linspace(0, 65535, 600).astype(np.uint16), 65535),
    "16 bits, dark": (np.linspace(0, 20_000, 600).astype(np.uint16), 65535),
    "12 bits in 16": (np.linspace(0, 4095, 600).astype(np.uint16), 4095),
    "8 bits in 16": (np.linspace(0, 255, 600).astype(np.uint16), 255),
    "20 bits in 32": (np.linspace(0, 1_000_000, 600).astype(np.int32), 2**20 - 1),
    "fractions": (np.linspace(0, 1, 600).astype(np.float32), 1),
    "floats to 255": (np.linspace(0, 255, 600).astype(np.float32), 255),
}


@pytest.mark.parametrize("depth", DEEP)
def test_a_picture_of_many_bits_is_scaled_by_its_range(depth: str, tmp_path: Path) -> None:
    values, white = DEEP[depth]
    file = saved(tmp_path / "deep.tif", values.reshape(30, 20))
    expected = (values.reshape(30, 20) / white * 255).round()
    assert np.abs(np.asarray(opened(file)) - expected[..., None]).max() <= 1e-9
    assert read_as(file) == (() if white == 65535 else ("scaled",))


@pytest.mark.parametrize("wrong", [np.float32(-1000), np.float32(np.nan), np.float32(np.inf), np.int32(-1)])
def test_values_whose_white_cannot_be_told_are_refused(wrong: np.generic, tmp_path: Path) -> None:
    values = np.ones((30, 20), wrong.dtype)
    values[4, 5] = wrong
    file = saved(tmp_path / "scan.tif", values)
    with pytest.raises(
        DataError, match=r"scan\.tif cannot be read: its values range from .* black and white .*Save it with"
    ):
        opened(file)
    [problem], _ = look_at([file])
    assert "Save it with 8 or 16 bits" in problem.fix


@pytest.mark.parametrize("mode", ["RGB", "L", "CMYK", "1", "P", "RGBA", "LA"])
def test_other_pictures_stay_as_pillow_converts_them(mode: str, tmp_path: Path) -> None:
    """A real photograph in the modes that collections have; one with an alpha that hides nothing, too."""
    with get_sample_data("grace_hopper.jpg") as stored:
        photograph = Image.open(stored).convert("RGB").resize((128, 150))
    file = FileSlice(tmp_path / ("a.jpg" if mode == "CMYK" else "a.png"))
    photograph.convert(mode).save(file.path)
    with Image.open(file.path) as image:
        expected = np.asarray(image.convert("RGB"))
    assert np.array_equal(np.asarray(opened(file)), expected)
    assert read_as(file) == ()


@pytest.mark.filterwarnings("ignore:.*orrupt EXIF")
def test_damaged_exif_turns_nothing(tmp_path: Path) -> None:
    whole = saved(tmp_path / "a.jpg", QUARTERS.astype(np.uint8), exif=b"Exif\0\0II*\0\x08\0\0\0\xff\xff")
    assert opened(whole).size == size_of(whole) == (60, 40)
    assert read_as(whole) == ()
