"""Pictures as published processors prepare them: to the bit, and the numbers that they are normalised with."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from goalgrid.grid.errors import UserError
from goalgrid.grid.settings.image_encoders import BackboneSettings
from goalgrid.retrieval.data.images import pixels_of
from goalgrid.retrieval.encoders.calls.called import as_called, pictures_of
from goalgrid.retrieval.encoders.statistics import STATISTICS

transformers = pytest.importorskip("transformers")
pytestmark = pytest.mark.gate

SCALED = {"do_rescale": True, "rescale_factor": 1 / 255, "do_resize": True, "do_normalize": True}
CLIP = {"image_mean": [0.48145466, 0.4578275, 0.40821073], "image_std": [0.26862954, 0.26130258, 0.27577711]}
HALF = {"image_mean": [0.5, 0.5, 0.5], "image_std": [0.5, 0.5, 0.5]}
IMAGENET = {"image_mean": [0.485, 0.456, 0.406], "image_std": [0.229, 0.224, 0.225]}
SIDE = {"height": 224, "width": 224}
CUT = {"do_center_crop": True, "crop_size": SIDE}
PUBLISHED: dict[str, tuple[str, dict[str, Any]]] = {
    "CLIP": ("CLIP", {"size": {"shortest_edge": 224}, "resample": 3, **CUT, **CLIP}),
    "CLIP, old file": ("CLIP", {"size": 224, "do_center_crop": True, "crop_size": 224, "resample": 3, **CLIP}),
    "MetaCLIP 2": ("CLIP", {"size": SIDE, "resample": 3, **CUT, **CLIP}),
    "AIMv2": ("CLIP", {"size": {"shortest_edge": 224}, "resample": 3, **CUT, **CLIP}),
    "SigLIP": ("Siglip", {"size": SIDE, "resample": 3, **HALF}),
    "SigLIP 2": ("Siglip", {"size": SIDE, "resample": 2, **HALF}),
    "TIPSv2": ("Siglip", {"size": {"height": 448, "width": 448}, "resample": 2, "do_normalize": False}),
    "DINOv2": ("Bit", {"size": {"shortest_edge": 256}, "resample": 3, **CUT, **IMAGENET}),
    "DINOv3": ("ViT", {"size": SIDE, "resample": 2, **IMAGENET}),
    "DINOv3, satellite": ("ViT", {"size": SIDE, "resample": 2, "image_mean": [0.43, 0.411, 0.296],
                                  "image_std": [0.213, 0.156, 0.143]}),
    "ConvNeXtV2": ("ConvNext", {"size": {"shortest_edge": 224}, "crop_pct": 0.875, "resample": 3, **IMAGENET}),
    "ConvNeXtV2 at 384": ("ConvNext", {"size": {"shortest_edge": 384}, "crop_pct": 0.875, "resample": 3, **IMAGENET}),
    "ViT": ("ViT", {"size": SIDE, "resample": 2, **HALF}),
    "Swin v2": ("ViT", {"size": {"height": 256, "width": 256}, "resample": 3, **IMAGENET}),
    "BEiT": ("Beit", {"size": SIDE, "resample": 3, "do_center_crop": False, "crop_size": SIDE, **HALF}),
}  # fmt: skip
"""By name, the processor of `transformers` and its file, without what all have."""


def photographs() -> list[Image.Image]:
    """Smooth shapes with noise, of the sizes of Flickr's photographs, an odd one, and a long one."""
    rng, pictures = np.random.default_rng(0), []
    for width, height in ((500, 375), (375, 500), (333, 500), (500, 281), (900, 120)):
        coarse = Image.fromarray(rng.integers(0, 256, (height // 25, width // 25, 3), dtype=np.uint8))
        smooth = np.asarray(coarse.resize((width, height), Image.Resampling.BICUBIC)).astype(int)
        noisy = np.clip(smooth + rng.integers(-20, 20, smooth.shape), 0, 255).astype(np.uint8)
        pictures.append(Image.fromarray(noisy))
    return pictures


def written(folder: Path, fields: dict[str, Any]) -> BackboneSettings:
    (folder / "config.json").write_text("{}")
    (folder / "preprocessor_config.json").write_text(json.dumps(fields))
    return BackboneSettings.model_validate({"encoder": "backbone", "weights": "a", "call": "published"})


@pytest.mark.parametrize("name", PUBLISHED)
def test_pictures_are_those_of_the_published_processor_to_the_bit(name: str, tmp_path: Path) -> None:
    kind, own = PUBLISHED[name]
    fields = {**SCALED, **own}
    settings, places = written(tmp_path, fields), {"a": tmp_path}
    assert settings.view.framing == "published"
    called = as_called(settings, places).model_copy(update={"size": pictures_of(settings, places).size})
    theirs = getattr(transformers, f"{kind}ImageProcessorPil")(**{**fields, "do_normalize": False, "do_rescale": False})
    for picture in photographs():
        expected = theirs(picture, return_tensors="np")["pixel_values"][0]
        ours = pixels_of(picture, called.view).transpose(2, 0, 1)
        assert (ours == expected).all(), (name, picture.size)
    given: Any = called.statistics
    means, deviations = STATISTICS[given] if isinstance(given, str) else (given[:3], given[3:])
    pixels = torch.randint(0, 256, (3, 4, 4), dtype=torch.uint8)
    normalised = getattr(transformers, f"{kind}ImageProcessorPil")(
        **{**fields, "do_resize": False, "do_center_crop": False}
    )
    expected = torch.from_numpy(normalised(pixels, return_tensors="np")["pixel_values"][0])
    shift, scale = (torch.tensor(values)[:, None, None] for values in (means, deviations))
    torch.testing.assert_close((pixels / 255 - shift) / scale, expected.float(), rtol=1e-5, atol=1e-5)


def test_fields_that_a_grid_sets_are_kept(tmp_path: Path) -> None:
    settings = written(tmp_path, {**SCALED, **PUBLISHED["DINOv2"][1]})
    changed = settings.model_copy(update={"filter": "bilinear", "statistics": "half"})
    called = as_called(changed, {"a": tmp_path})
    assert (called.framing, called.margin, called.filter, called.statistics) == (
        "centre-crop",
        256 / 224,
        "bilinear",
        "half",
    )
    plain = BackboneSettings.model_validate({"encoder": "backbone", "weights": "a"})
    assert as_called(plain, {}) is plain


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"size": SIDE, **HALF}, "it has no 'resample'"),
        ({"resample": 3, **HALF}, "it has no 'size'"),
        ({"size": SIDE, "resample": 1, **HALF}, "the filter 1 of Pillow; known are 2, bilinear, and 3, bicubic"),
        ({"size": {"height": 256, "width": 256}, "resample": 3, **CUT}, "squeezed to 256 pixels, and 224 are cut"),
        ({"size": {"shortest_edge": 224}, "resample": 3, **HALF}, "keep their proportions and are not cut"),
        ({"size": {"shortest_edge": 200}, "resample": 3, **CUT, **HALF}, "resized to 200 pixels, and 224 are cut"),
        ({"size": {"height": 224, "width": 448}, "resample": 3, **HALF}, "224 x 448 pixels are no square"),
        ({"size": SIDE, "resample": 3, "rescale_factor": 1 / 127.5, **HALF}, "not brought to values from 0 to 1"),
        ({"size": SIDE, "resample": 3}, "it has no 'image_mean'"),
    ],
)  # fmt: skip
def test_a_file_that_does_not_decide_is_an_error_that_says_what_to_set(
    fields: dict[str, Any], why: str, tmp_path: Path
) -> None:
    settings = written(tmp_path, {**SCALED, **fields})
    with pytest.raises(
        UserError, match=f"pictures of 'a' cannot be taken from preprocessor_config.json: .*{why}.*plain"
    ):
        as_called(settings, {"a": tmp_path})


def test_a_folder_without_the_file_is_an_error(tmp_path: Path) -> None:
    settings = written(tmp_path, {})
    with pytest.raises(UserError, match=r"has no preprocessor_config\.json, which says how pictures are prepared"):
        as_called(settings, {"a": tmp_path})
