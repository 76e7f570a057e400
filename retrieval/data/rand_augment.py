"""RandAugment as X-VLM trains with it: two of ten changes of a picture, each made with probability one half.

The strengths are those of level 7 of 10. Brightness and sharpness only rise; turns and shifts go either way, and what
they uncover is grey. X-VLM's configs/Retrieval_*.yaml and dataset/randaugment.py.
"""

from collections.abc import Callable
from functools import partial

import numpy as np
from PIL import Image, ImageEnhance, ImageOps

COUNT, CHANCE = 2, 0.5
"""Changes that are drawn, with replacement, and the probability that a drawn change is made."""
GREY = (128, 128, 128)
ENHANCED, SHEARED, SHIFTED, TURNED = 1.36, 0.21, 7.0, 21.0
"""Factor of brightness and sharpness; pixels sideways for each pixel downwards; pixels; degrees."""

Change = Callable[[Image.Image, float], Image.Image]
"""Changes a picture; the number, 1 or -1, is the direction of a turn or a shift."""


def rand_augmented(picture: Image.Image, draw: np.random.Generator) -> Image.Image:
    """The picture after the changes that are drawn."""
    for name in draw.choice(list(CHANGES), COUNT):
        if draw.random() < CHANCE:
            picture = CHANGES[name](picture, 1.0 if draw.random() < 0.5 else -1.0)
    return picture


def _moved(a: float, b: float, c: float, d: float, e: float, f: float, picture: Image.Image, way: float) -> Image.Image:
    """Move pixels: the new pixel (x, y) is the old pixel at (a x + b y + c, d x + e y + f), from centre to centre."""
    b, c, d, f = (way * part for part in (b, c, d, f))
    points = (a, b, c - (a + b - 1) / 2, d, e, f - (d + e - 1) / 2)  # Pillow counts from the corners of pixels
    return picture.transform(picture.size, Image.Transform.AFFINE, points, Image.Resampling.BILINEAR, fillcolor=GREY)


def _turned(picture: Image.Image, way: float) -> Image.Image:
    return picture.rotate(way * TURNED, Image.Resampling.BILINEAR, fillcolor=GREY)


CHANGES: dict[str, Change] = {
    "identity": lambda picture, way: picture,
    "autocontrast": lambda picture, way: ImageOps.autocontrast(picture),
    "equalize": lambda picture, way: ImageOps.equalize(picture),
    "brightness": lambda picture, way: picture.point(lambda value: min(255, int(value * ENHANCED))),
    "sharpness": lambda picture, way: ImageEnhance.Sharpness(picture).enhance(ENHANCED),
    "shear-x": partial(_moved, 1.0, -SHEARED, 0.0, 0.0, 1.0, 0.0),
    "shear-y": partial(_moved, 1.0, 0.0, 0.0, -SHEARED, 1.0, 0.0),
    "translate-x": partial(_moved, 1.0, 0.0, SHIFTED, 0.0, 1.0, 0.0),
    "translate-y": partial(_moved, 1.0, 0.0, 0.0, 0.0, 1.0, SHIFTED),
    "rotate": _turned,
}
"""The changes by name; each is drawn with the same probability."""
