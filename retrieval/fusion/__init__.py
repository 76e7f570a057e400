"""What looks at an image and a caption together, beside two encoders: a fusion encoder, by its kind."""

from collections.abc import Callable
from typing import Any

from goalgrid.retrieval.fusion.encoder import FusionEncoder

FUSIONS: dict[str, Callable[[Any], FusionEncoder | None]] = {
    "none": lambda settings: None,
    "x-vlm": lambda settings: FusionEncoder(settings.fusion, settings.text, settings.image.last_width),
}
"""Each by the kind in `grid/settings/fusion.py`, for a model of these settings."""
