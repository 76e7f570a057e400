"""Settings of the view: the square of a picture that an image encoder sees."""

from dataclasses import dataclass
from enum import IntEnum
from typing import Literal

Framing = Literal["square", "centre-crop"]
Filter = Literal["bilinear", "bicubic"]
Augmentation = Literal["none", "resized-crop", "scale-crop", "side-crop", "rand-augment"]


class Resampling(IntEnum):
    """Resampling filter of pictures, by Pillow's numbers."""

    BILINEAR = 2
    BICUBIC = 3


@dataclass(frozen=True)
class View:
    """The square of a picture that a network sees.

    Args:
        size: side in pixels.
        framing: in evaluation; `square` squeezes the whole picture, `centre-crop` keeps its proportions; `published`:
            not known without the folder of the weights.
        augmentation: in training, as `model.image.augmentation` says.
        flip: mirror half of the training views.
        margin: of `centre-crop`, what `size` is multiplied with for the side, in whole pixels, that the picture's
            shorter one is resized to before the centre is cut; None: 256 / 224, in fractions of a pixel.
    """

    size: int
    framing: Framing | Literal["published"] = "square"
    augmentation: Augmentation = "none"
    flip: bool = False
    resampling: Resampling = Resampling.BILINEAR
    margin: float | None = None

    @property
    def random(self) -> bool:
        """Whether training views differ from draw to draw."""
        return self.augmentation != "none" or self.flip
