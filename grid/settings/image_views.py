"""The view of a picture: how it is resized, cropped and augmented for an image encoder."""

from dataclasses import dataclass
from enum import IntEnum
from typing import Literal

Framing = Literal["square", "centre-crop"]
Filter = Literal["bilinear", "bicubic"]
Augmentation = Literal["none", "resized-crop", "scale-crop", "side-crop", "rand-augment"]


class Resampling(IntEnum):
    """Interpolation used to resize pictures, numbered as in Pillow."""

    BILINEAR = 2
    BICUBIC = 3


@dataclass(frozen=True)
class View:
    """The square view of a picture that a network reads.

    Args:
        size: side in pixels.
        framing: in evaluation, `square` squeezes the whole picture and `centre-crop` keeps its aspect ratio;
            `published` is resolved from the folder of the weights.
        augmentation: the crop in training; see `model.image.augmentation`.
        flip: flip training views horizontally with probability 1/2.
        resampling: interpolation used to resize the picture.
        margin: for `centre-crop`, the picture's shorter side is first resized to `margin * size`, rounded to whole
            pixels; None: 256 / 224, not rounded.
    """

    size: int
    framing: Framing | Literal["published"] = "square"
    augmentation: Augmentation = "none"
    flip: bool = False
    resampling: Resampling = Resampling.BILINEAR
    margin: float | None = None

    @property
    def random(self) -> bool:
        """Whether training views are random."""
        return self.augmentation != "none" or self.flip
