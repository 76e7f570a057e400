"""Image files as 8-bit RGB: rotated according to EXIF, on a white background, and scaled if they have more bits.

For most files, which are none of these, this is Pillow's plain conversion. This module does not import torch.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
from PIL import ExifTags, Image, UnidentifiedImageError

from goalgrid.retrieval.data.file_slice import FileSlice
from goalgrid.retrieval.splits.pairs import DataError
from goalgrid.retrieval.splits.problems import CAUSES, POINTER, TOO_LARGE

TURNS = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}
"""For each EXIF orientation, the transposition that undoes it."""
ON_SIDE = (5, 6, 7, 8)
"""Orientations that swap width and height."""
DEEP = ("I;16", "I;16B", "I;16L", "I;16N", "I", "F")
"""Pillow's modes of greyscale images with more than 8 bits per pixel."""
DEPTHS = range(8, 33, 2)
"""Possible bit depths, which may be less than the file format has room for; cameras and scanners use even numbers."""
SIXTEEN = 2**16 - 1
UNTOLD = "the black and white levels are unknown"
REMEDIES = {
    POINTER: CAUSES[POINTER],
    "exceeds limit": TOO_LARGE,
    UNTOLD: "Save it with 8 or 16 bits per pixel, with values from 0 to 255 or 65535.",
}
"""Advice for a damaged image, by words in the error message."""


def opened(file: FileSlice) -> Image.Image:
    """Decode the image as RGB; raises DataError if it is missing or unreadable, or its white level is unknown."""
    with _readable(file) as image:
        seen = _rgb(image)
        turn = TURNS.get(_orientation(image))
        return seen if turn is None else seen.transpose(turn)


def size_of(file: FileSlice) -> tuple[int, int]:
    """Return width and height of the image that `opened` returns, from the header; raises DataError like `opened`."""
    with _readable(file) as image:
        width, height = image.size
        return (height, width) if _orientation(image) in ON_SIDE else (width, height)


def read_as(file: FileSlice) -> tuple[str, ...]:
    """Open the file and call `ways_of`; raises DataError like `opened`."""
    with _readable(file) as image:
        return ways_of(image)


def ways_of(image: Image.Image) -> tuple[str, ...]:
    """Return how an image is read, as keys of `forms.READ_AS`; only images with alpha or high bit depth are decoded.

    Raises OSError or ValueError if it is unreadable.
    """
    turned = ("turned",) if _orientation(image) in TURNS else ()
    if image.mode in DEEP:
        return (*turned, "scaled") if _white(image) != SIXTEEN else turned
    return (*turned, "transparent") if _transparent(image) else turned


def remedy(fault: str) -> str:
    """Return advice for an image that cannot be read for this reason."""
    return next((fix for words, fix in REMEDIES.items() if words in fault), "Download this file again.")


def _orientation(image: Image.Image) -> int:
    """Return the EXIF orientation; 1 (as stored) for TIFF, which Pillow rotates itself, and for damaged EXIF."""
    if image.format == "TIFF":
        return 1
    try:
        return int(image.getexif().get(ExifTags.Base.Orientation, 1))
    except Exception:  # readers of damaged EXIF raise many kinds of errors
        return 1


def _rgb(image: Image.Image) -> Image.Image:
    if image.mode in DEEP:
        grey = (np.asarray(image).astype(np.float64) / (_white(image) / 255)).round().clip(0, 255)
        return Image.fromarray(grey.astype(np.uint8)).convert("RGB")
    if not image.has_transparency_data:
        return image.convert("RGB")
    white = Image.new("RGBA", image.size, "white")
    return Image.alpha_composite(white, image.convert("RGBA")).convert("RGB")


def _transparent(image: Image.Image) -> bool:
    if not image.has_transparency_data:
        return False
    least, _ = image.convert("RGBA").getchannel("A").getextrema()
    return least != 255


def _white(image: Image.Image) -> float:
    """Return the white level of a high-bit-depth image: 1 for fractions, else the maximum of the bit depth in use.

    Raises ValueError if values are negative, too large or not numbers.
    """
    values = np.asarray(image)
    low, high = float(values.min()), float(values.max())
    if not (low >= 0 and high < 2 ** DEPTHS[-1]):  # as no number is
        raise ValueError(f"its values range from {low:g} to {high:g}, so {UNTOLD}")
    if image.mode == "F" and high <= 1:
        return 1.0
    return float(next(2**bits - 1 for bits in DEPTHS if high < 2**bits))


@contextmanager
def undecoded(file: FileSlice) -> Iterator[Image.Image]:
    """Open an image and read its header.

    Raises OSError, SyntaxError or ValueError if the file is missing, truncated or not an image.
    """
    try:
        with file.open() as source, Image.open(source) as image:
            yield image
    except UnidentifiedImageError as error:
        raise error if file.length is None else OSError("cannot identify image file") from None


@contextmanager
def _readable(file: FileSlice) -> Iterator[Image.Image]:
    try:
        with undecoded(file) as image:
            yield image
    except FileNotFoundError:
        raise DataError(f"image {file} is missing.") from None
    except Image.DecompressionBombError as error:
        raise DataError(f"image {file} is too large to be read: {error} {remedy(str(error))}") from None
    except (OSError, SyntaxError, ValueError) as error:
        raise DataError(f"image {file} cannot be read: {error}. {remedy(str(error))}") from error
