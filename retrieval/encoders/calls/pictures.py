"""What a pretrained network sees of a picture, by its preprocessor_config.json."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from goalgrid.grid.errors import UserError
from goalgrid.grid.settings.image_encoders import Statistics
from goalgrid.grid.settings.image_views import Filter, Framing
from goalgrid.retrieval.encoders.statistics import STATISTICS

FILTERS: dict[int, Filter] = {2: "bilinear", 3: "bicubic"}
"""By Pillow's number, which files give."""
UNCUT = 384
"""From this size on, ConvNeXt squeezes pictures; a smaller one is cut from `size / crop_pct`. Liu et al. 2022."""


@dataclass(frozen=True)
class PictureCall:
    """How a published processor prepares pictures, by the names of the settings.

    Args:
        size: side of the square in pixels.
        margin: None where the whole picture is squeezed.
    """

    size: int
    framing: Framing
    margin: float | None
    filter: Filter
    statistics: Statistics

    def text(self) -> str:
        margin = "" if self.margin is None else f" with margin {self.margin:g}"
        statistics = self.statistics if isinstance(self.statistics, str) else ", ".join(map(str, self.statistics))
        return f"{self.size} pixels, {self.framing}{margin}, {self.filter}, statistics {statistics}"


def picture_call(content: Mapping[str, Any], weights: str) -> PictureCall:
    """Return the call that a preprocessor_config.json describes; UserError: it does not decide, or does other things.

    Args:
        content: of the file; a processor_config.json holds it as `image_processor`.
        weights: their name, for messages.
    """
    fields = content.get("image_processor", content)
    try:
        size, framing, margin = _frame(fields)
        return PictureCall(size, framing, margin, _filter(fields), _statistics(fields))
    except (KeyError, TypeError, ValueError) as error:
        why = f"it has no {error}" if isinstance(error, KeyError) else str(error)
        raise UserError(
            f"the published call of the pictures of {weights!r} cannot be taken from preprocessor_config.json: {why}. "
            'Set model.image.call = "plain", and framing, margin, filter and statistics as its authors name them.'
        ) from error


def _frame(fields: Mapping[str, Any]) -> tuple[int, Framing, float | None]:
    """Size, framing and margin."""
    if not fields.get("do_resize", True):
        raise ValueError("pictures are not resized")
    size, cut = fields["size"], _side(fields["crop_size"]) if fields.get("do_center_crop") else None
    shorter = size.get("shortest_edge") if isinstance(size, Mapping) else size
    if "crop_pct" in fields and shorter:
        crops = shorter < UNCUT
        return shorter, *(("centre-crop", int(shorter / fields["crop_pct"]) / shorter) if crops else ("square", None))
    if shorter and isinstance(size, Mapping) and cut is None:
        raise ValueError("pictures keep their proportions and are not cut to a square")
    if cut is None or not shorter:
        side = shorter or _side(size)
        if cut not in (None, side):
            raise ValueError(f"pictures are squeezed to {side} pixels, and {cut} are cut from them")
        return side, "square", None
    if shorter < cut:
        raise ValueError(f"pictures are resized to {shorter} pixels, and {cut} are cut from them")
    return cut, "centre-crop", shorter / cut


def _side(size: Any) -> int:
    """Side of a square, in pixels."""
    if not isinstance(size, Mapping):
        return int(size)
    if size["height"] != size["width"]:
        raise ValueError(f"{size['height']} x {size['width']} pixels are no square")
    return int(size["height"])


def _filter(fields: Mapping[str, Any]) -> Filter:
    if fields["resample"] not in FILTERS:
        raise ValueError(
            f"it resizes with the filter {fields['resample']} of Pillow; known are 2, bilinear, and 3, bicubic"
        )
    return FILTERS[fields["resample"]]


def _statistics(fields: Mapping[str, Any]) -> Statistics:
    """Mean and deviation of values from 0 to 1: by their name, where they have one."""
    if not fields.get("do_rescale", True) or abs(fields.get("rescale_factor", 1 / 255) * 255 - 1) > 1e-6:
        raise ValueError("pixels are not brought to values from 0 to 1")
    if not fields.get("do_normalize", "image_mean" in fields):
        return "none"
    means, deviations = (tuple(map(float, fields[name])) for name in ("image_mean", "image_std"))
    (red, green, blue), (of_red, of_green, of_blue) = means, deviations
    named = next((name for name, values in STATISTICS.items() if values == (means, deviations)), None)
    return named or (red, green, blue, of_red, of_green, of_blue)
