"""What each shipped recipe sees of a photograph, beside the preparation of its source, written out with Pillow."""

from collections.abc import Callable
from fnmatch import fnmatch

import numpy as np
import pytest
from matplotlib.cbook import get_sample_data
from PIL import Image

from goalgrid.grid import catalog
from goalgrid.grid.settings.image_views import Resampling, View
from goalgrid.retrieval.data.images import pixels_of

BILINEAR, BICUBIC = Image.Resampling.BILINEAR, Image.Resampling.BICUBIC
Prepared = Callable[[Image.Image, int], Image.Image]


def cropped(picture: Image.Image, shorter: int, size: int, resample: Image.Resampling) -> Image.Image:
    """Resize(shorter), CenterCrop(size) of torchvision."""
    width, height = (int(shorter * side / min(picture.size)) for side in picture.size)
    resized = picture.resize((width, height), resample)
    left, top = (resized.width - size) // 2, (resized.height - size) // 2
    return resized.crop((left, top, left + size, top + size))


def clip(picture: Image.Image, size: int) -> Image.Image:
    """openai/CLIP, clip/clip.py: Resize(n_px, interpolation=BICUBIC), CenterCrop(n_px)."""
    return cropped(picture, size, size, BICUBIC)


def vsepp(picture: Image.Image, size: int) -> Image.Image:
    """fartashf/vsepp, data.py: Resize(256), CenterCrop(224); at another size in the same proportion."""
    return cropped(picture, round(size * 256 / 224), size, BILINEAR)


def squeezed(resample: Image.Resampling) -> Prepared:
    return lambda picture, size: picture.resize((size, size), resample)


SOURCES: dict[str, tuple[Prepared, float]] = {
    "clip-*": (clip, 0.0),
    "vsepp-*": (vsepp, 12.0),  # ours is cut without rounding to pixels, half a pixel beside theirs; CLIP's frame: 36
    "siglip-*": (squeezed(BICUBIC), 0.0),  # preprocessor_config.json: size 224 x 224, resample 3, no crop
    "xvlm*": (squeezed(BICUBIC), 0.0),  # zengyan-97/X-VLM, dataset/__init__.py: Resize((res, res), BICUBIC)
    "vse-inf-*": (squeezed(BILINEAR), 0.0),  # woodfrog/vse_infinity: cv2.resize, bilinear, no crop in the test
    "vse-2ad-*": (squeezed(BILINEAR), 0.0),  # 96-Zachary/vse_2ad: as VSE-infinity
    "frozen-bow": (squeezed(BILINEAR), 0.0),  # ours, as are all below
    "cnn-*": (squeezed(BICUBIC), 0.0),
    **dict.fromkeys(("scan*-tiny", "bfan*-tiny", "s[ag]*-tiny"), (squeezed(BICUBIC), 0.0)),
}
"""By pattern of recipes: the preparation of the source, and the mean difference of pixels that is allowed, of 255."""
VIEWS = {name: view for name in catalog.names("recipes") if (view := catalog.recipe(name).model.image.view)}


@pytest.fixture(scope="module")
def photograph() -> Image.Image:
    """A photograph of 500 x 375 pixels."""
    with get_sample_data("grace_hopper.jpg") as file:
        return Image.open(file).convert("RGB").crop((6, 100, 506, 475))


def difference(picture: Image.Image, view: View, prepared: Prepared) -> float:
    ours = pixels_of(picture, view).astype(float)
    return float(np.abs(ours - np.asarray(prepared(picture, view.size))).mean())


@pytest.mark.parametrize("recipe", VIEWS)
def test_a_recipe_sees_what_its_source_prepares(recipe: str, photograph: Image.Image) -> None:
    (prepared, allowed), *more = (found for pattern, found in SOURCES.items() if fnmatch(recipe, pattern))
    assert not more
    for picture in (photograph, photograph.transpose(Image.Transpose.ROTATE_90)):
        assert difference(picture, VIEWS[recipe], prepared) <= allowed


@pytest.mark.parametrize(("width", "height"), [(500, 375), (375, 500), (335, 500), (500, 333), (640, 427), (100, 90)])
@pytest.mark.parametrize("margin", [1.0, 256 / 224, 1.25])
def test_a_margin_is_resize_and_crop(margin: float, width: int, height: int, photograph: Image.Image) -> None:
    """As processors of `transformers`; CLIP, DINOv2 and ConvNeXt have these margins."""
    picture = photograph.resize((width, height))
    view = View(224, "centre-crop", resampling=Resampling.BICUBIC, margin=margin)
    assert difference(picture, view, lambda seen, size: cropped(seen, round(margin * size), size, BICUBIC)) == 0


def test_the_centre_of_a_very_long_picture_is_seen(photograph: Image.Image) -> None:
    long = Image.new("RGB", (9000, 16))
    long.paste(photograph.resize((400, 16)), (4300, 0))
    view = View(64, "centre-crop", resampling=Resampling.BICUBIC, margin=1.0)
    assert difference(long, view, clip) < 0.5
