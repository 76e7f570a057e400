"""Picture files as RGB of 8 bits: turned as their EXIF says, over white, and scaled where a pixel has more bits.

Most files are none of these: what Pillow converts them to is what networks see. This module loads no torch.
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
"""Transposition that undoes an orientation of EXIF."""
ON_SIDE = (5, 6, 7, 8)
"""Orientations that swap width and height."""
DEEP = ("I;16", "I;16B", "I;16L", "I;16N", "I", "F")
"""Pillow's modes of grey pictures with more than 8 bits a pixel."""
DEPTHS = range(8, 33, 2)
"""Bits that a pixel may have, whatever the file has room for: cameras and scanners give it an even number."""
SIXTEEN = 2**16 - 1
UNTOLD = "black and white cannot be told"
REMEDIES = {
    POINTER: CAUSES[POINTER],
    "exceeds limit": TOO_LARGE,
    UNTOLD: "Save it with 8 or 16 bits a pixel, values from 0 to 255 or 65535.",
}
"""Advice for a damaged picture, by words of the fault."""


def opened(file: FileSlice) -> Image.Image:
    """Decode the picture in this file, in RGB; DataError: missing, unreadable, or its white level is unknown."""
    with _readable(file) as image:
        seen = _rgb(image)
        turn = TURNS.get(_orientation(image))
        return seen if turn is None else seen.transpose(turn)


def size_of(file: FileSlice) -> tuple[int, int]:
    """Return width and height as `opened` gives them, by the file's header; DataError: as `opened`."""
    with _readable(file) as image:
        width, height = image.size
        return (height, width) if _orientation(image) in ON_SIDE else (width, height)


def read_as(file: FileSlice) -> tuple[str, ...]:
    """Open the file and call `ways_of`; DataError: as `opened`."""
    with _readable(file) as image:
        return ways_of(image)


def ways_of(image: Image.Image) -> tuple[str, ...]:
    """Return how a picture is read, of `forms.READ_AS`; only one with an alpha or many bits a pixel is decoded.

    OSError or ValueError: it cannot be read.
    """
    turned = ("turned",) if _orientation(image) in TURNS else ()
    if image.mode in DEEP:
        return (*turned, "scaled") if _white(image) != SIXTEEN else turned
    return (*turned, "transparent") if _transparent(image) else turned


def remedy(fault: str) -> str:
    """Return the advice for a picture that cannot be read for this reason."""
    return next((fix for words, fix in REMEDIES.items() if words in fault), "Fetch this file again.")


def _orientation(image: Image.Image) -> int:
    """The orientation of EXIF; 1: as stored. Pillow turns a TIFF by itself; what damaged EXIF says does not count."""
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
    """The value of white in a deep picture: 1 where fractions go no higher, else the most of the depth that they take.

    ValueError: there are values below 0, or none that are numbers.
    """
    values = np.asarray(image)
    low, high = float(values.min()), float(values.max())
    if not (low >= 0 and high < 2 ** DEPTHS[-1]):  # as no number is
        raise ValueError(f"its values go from {low:g} to {high:g}, of which {UNTOLD}")
    if image.mode == "F" and high <= 1:
        return 1.0
    return float(next(2**bits - 1 for bits in DEPTHS if high < 2**bits))


@contextmanager
def undecoded(file: FileSlice) -> Iterator[Image.Image]:
    """Open a picture and read its header; OSError, SyntaxError or ValueError: it is missing, cut or not a picture."""
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
