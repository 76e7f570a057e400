"""Images as pixels: resizing, cropping and augmentation, in evaluation and in training.

RandAugment follows X-VLM: two of ten operations are drawn, each applied with probability 0.5, at the strengths of level
7 of 10. Brightness and sharpness only increase; rotations and shifts go in either direction, and fill with grey.
X-VLM's configs/Retrieval_*.yaml and dataset/randaugment.py.
"""

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import numpy as np
import torch
from jaxtyping import Int, UInt8
from PIL import Image, ImageEnhance, ImageOps
from torch import Tensor

from goalgrid.grid.settings.image_views import View
from goalgrid.retrieval.data.file_slice import FileSlice
from goalgrid.retrieval.data.picture_files import opened
from goalgrid.retrieval.splits.pairs import WHOLE

KEPT_BYTES = 1 << 30
"""Maximum bytes of a split's evaluation views to decode once and cache; larger splits are decoded on each access."""
MARGIN = 256 / 224
"""Default margin: evaluation resizes the shorter side to MARGIN x size and crops the centre, as in VSE++."""
LONGEST = 16
"""Maximum aspect ratio; of longer images only the middle part is resized, as the rest is far from the centre crop."""
AREA, RATIO = (0.08, 1.0), (3 / 4, 4 / 3)
"""Ranges of the area (as a share of the image) and the aspect ratio of a random resized crop, as in torchvision."""
LARGE_AREA = (0.5, 1.0)
"""Range of the area of the crop in `rand-augment`, as a share of the image."""
SIDES = (0.6, 1.0)
"""Range of the share of a side that a crop keeps; `scale-crop` (VSE-infinity) draws one share, `side-crop` two."""
COUNT, CHANCE = 2, 0.5
"""Number of operations drawn, with replacement, and the probability of applying each."""
GREY = (128, 128, 128)
ENHANCED, SHEARED, SHIFTED, TURNED = 1.36, 0.21, 7.0, 21.0
"""Factor of brightness and sharpness; shear (pixels per pixel); shift (pixels); rotation (degrees)."""

Box = tuple[float, float, float, float]
"""Left, top, right and bottom, in pixels of the image."""


def pixels_of(picture: Image.Image, view: View, draw: np.random.Generator | None = None) -> UInt8[np.ndarray, "h w 3"]:
    """Return the evaluation view of an image or, if a generator is given, a random training view."""
    if draw is None or not view.random:
        return np.array(_framed(picture, view))
    box = None if view.augmentation == "none" else _crop(view, *picture.size, draw)
    mirrored = view.flip and draw.random() < 0.5
    picture = picture.transpose(Image.Transpose.FLIP_LEFT_RIGHT) if mirrored else picture
    seen = _resized(picture, view, box) if box else _framed(picture, view)
    return np.array(rand_augmented(seen, draw) if view.augmentation == "rand-augment" else seen)


def _resized(picture: Image.Image, view: View, box: Box) -> Image.Image:
    return picture.resize((view.size, view.size), Image.Resampling(view.resampling), box=box)


def _framed(picture: Image.Image, view: View) -> Image.Image:
    width, height = picture.size
    assert view.framing != "published", "must have been resolved from the folder of the weights"
    if view.framing == "square":
        return _resized(picture, view, (0.0, 0.0, float(width), float(height)))
    if view.margin is not None:
        return _resized_and_cut(picture, view, round(view.margin * view.size))
    side = min(width, height) / MARGIN
    left, top = (width - side) / 2, (height - side) / 2
    return _resized(picture, view, (left, top, left + side, top + side))


def _resized_and_cut(picture: Image.Image, view: View, shorter: int) -> Image.Image:
    """Resize the shorter side to this many pixels and crop the centre, bit-identical to `transformers`.

    Resizing only the crop would round its two passes differently. Of a very long image, only the middle is resized.
    """
    most = LONGEST * min(picture.size)
    if max(picture.size) > most:
        width, height = (min(side, most) for side in picture.size)
        left, top = (picture.width - width) // 2, (picture.height - height) // 2
        picture = picture.crop((left, top, left + width, top + height))
    width, height = (int(shorter * side / min(picture.size)) for side in picture.size)
    left, top = (width - view.size) // 2, (height - view.size) // 2
    whole = picture.resize((width, height), Image.Resampling(view.resampling))
    return whole.crop((left, top, left + view.size, top + view.size))


def _crop(view: View, width: int, height: int, draw: np.random.Generator) -> Box:
    w, h = SIZES[view.augmentation](width, height, draw)
    left, top = draw.uniform(0, width - w), draw.uniform(0, height - h)
    return (left, top, left + w, top + h)


def _scale_crop(width: int, height: int, draw: np.random.Generator) -> tuple[float, float]:
    share = draw.uniform(*SIDES)
    return width * share, height * share


def _area_crop(
    width: int, height: int, draw: np.random.Generator, share: tuple[float, float] = AREA
) -> tuple[float, float]:
    """Draw area and aspect ratio up to ten times until the crop fits; else return the largest crop allowed."""
    for _ in range(10):
        area = width * height * draw.uniform(*share)
        ratio = np.exp(draw.uniform(*np.log(RATIO)))
        w, h = float(np.sqrt(area * ratio)), float(np.sqrt(area / ratio))
        if w <= width and h <= height:
            return w, h
    return min(float(width), height * RATIO[1]), min(float(height), width / RATIO[0])


SIZES: dict[str, Callable[[int, int, np.random.Generator], tuple[float, float]]] = {
    "resized-crop": _area_crop,
    "scale-crop": _scale_crop,
    "side-crop": lambda width, height, draw: (width * draw.uniform(*SIDES), height * draw.uniform(*SIDES)),
    "rand-augment": partial(_area_crop, share=LARGE_AREA),
}
"""For each augmentation, the function that draws width and height of a crop."""


def rand_augmented(picture: Image.Image, draw: np.random.Generator) -> Image.Image:
    """Apply randomly drawn RandAugment operations to an image."""
    for name in draw.choice(list(CHANGES), COUNT):
        if draw.random() < CHANCE:
            picture = CHANGES[name](picture, 1.0 if draw.random() < 0.5 else -1.0)
    return picture


def _moved(a: float, b: float, c: float, d: float, e: float, f: float, picture: Image.Image, way: float) -> Image.Image:
    """Move pixels: the new pixel (x, y) is the old pixel at (a x + b y + c, d x + e y + f), from centre to centre."""
    b, c, d, f = (way * part for part in (b, c, d, f))
    points = (a, b, c - (a + b - 1) / 2, d, e, f - (d + e - 1) / 2)  # Pillow counts from the corners of pixels
    return picture.transform(picture.size, Image.Transform.AFFINE, points, Image.Resampling.BILINEAR, fillcolor=GREY)


CHANGES: dict[str, Callable[[Image.Image, float], Image.Image]] = {
    "identity": lambda picture, way: picture,
    "autocontrast": lambda picture, way: ImageOps.autocontrast(picture),
    "equalize": lambda picture, way: ImageOps.equalize(picture),
    "brightness": lambda picture, way: picture.point(lambda value: min(255, int(value * ENHANCED))),
    "sharpness": lambda picture, way: ImageEnhance.Sharpness(picture).enhance(ENHANCED),
    "shear-x": partial(_moved, 1.0, -SHEARED, 0.0, 0.0, 1.0, 0.0),
    "shear-y": partial(_moved, 1.0, 0.0, 0.0, -SHEARED, 1.0, 0.0),
    "translate-x": partial(_moved, 1.0, 0.0, SHIFTED, 0.0, 1.0, 0.0),
    "translate-y": partial(_moved, 1.0, 0.0, 0.0, 0.0, 1.0, SHIFTED),
    "rotate": lambda picture, way: picture.rotate(way * TURNED, Image.Resampling.BILINEAR, fillcolor=GREY),
}
"""Operations by name, drawn with equal probability; their second argument, 1 or -1, is the direction."""


class ImageFiles:
    """Image files, decoded by worker threads (Pillow releases the GIL) and cropped and resized by a view.

    Each thread writes its view into the batch, which is complete once the last image is decoded. Batches in `pinned`
    memory are copied to a GPU asynchronously.
    """

    def __init__(
        self, files: list[FileSlice], view: View, *, workers: int = 1, keep: bool = True, pinned: bool = False
    ) -> None:
        self.files, self.view, self.pinned = files, view, pinned
        self.options: dict[str, Any] = {"workers": workers, "keep": keep, "pinned": pinned}
        self.pool = ThreadPoolExecutor(max_workers=max(1, workers), thread_name_prefix="decode")
        self.kept: UInt8[Tensor, "i 3 h w"] | None = None
        if keep and len(files) * 3 * view.size * view.size <= KEPT_BYTES:
            self.kept = torch.zeros(len(files), 3, view.size, view.size, dtype=torch.uint8)
        self.read = np.zeros(len(files), dtype=bool)

    def picture(self, row: int) -> Image.Image:
        return opened(self.files[row])

    @property
    def shape(self) -> tuple[int, ...]:
        return (3, self.view.size, self.view.size)

    def __len__(self) -> int:
        return len(self.files)

    def gather(
        self, rows: Int[np.ndarray, " b"], draw: int | None = None, part: slice = WHOLE
    ) -> UInt8[Tensor, "p 3 h w"]:
        """Return views of these images, decoded or from the cache; raises DataError like `opened`."""
        if draw is not None and self.view.random:
            return self.looks(rows, [draw], part)[0]
        if self.kept is not None:
            return self._evaluation_views(self.kept, rows[part])
        views = torch.empty(len(rows[part]), *self.shape, dtype=torch.uint8, pin_memory=self.pinned)
        self._decode_into(views[:, None], rows[part], [[None]] * len(views))
        return views

    def looks(
        self, rows: Int[np.ndarray, " b"], draws: Sequence[int], part: slice = WHOLE
    ) -> UInt8[Tensor, "d p 3 h w"]:
        """Return training views for several draws, as if `gather` were called per draw, but decode each image once."""
        seeds = [[[draw, place] for draw in draws] for place in range(len(rows))[part]]
        views = torch.empty(len(draws), len(seeds), *self.shape, dtype=torch.uint8, pin_memory=self.pinned)
        self._decode_into(views.transpose(0, 1), rows[part], seeds)
        return views

    def _evaluation_views(
        self, cached: UInt8[Tensor, "i 3 h w"], rows: Int[np.ndarray, " b"]
    ) -> UInt8[Tensor, "b 3 h w"]:
        missing = np.unique(rows[~self.read[rows]])
        self._decode_into([cached[row : row + 1] for row in missing], missing, [[None]] * len(missing))
        self.read[missing] = True
        return cached[torch.from_numpy(rows)]

    def _decode_into(
        self, views: Iterable[Tensor], rows: Int[np.ndarray, " b"], seeds: Sequence[Sequence[list[int] | None]]
    ) -> None:
        deque(self.pool.map(self._decode, views, rows.tolist(), seeds), maxlen=0)

    def _decode(self, views: UInt8[Tensor, "d 3 h w"], row: int, seeds: Sequence[list[int] | None]) -> None:
        picture = self.picture(row)
        for view, seed in zip(views, seeds, strict=True):
            draw = None if seed is None else np.random.default_rng(seed)
            view.copy_(planes(pixels_of(picture, self.view, draw)))


def planes(pixels: UInt8[np.ndarray, "h w 3"]) -> UInt8[Tensor, "3 h w"]:
    """Convert pixels to a tensor with the channels first."""
    return torch.from_numpy(pixels).permute(2, 0, 1)
