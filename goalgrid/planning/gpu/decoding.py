"""Measure the core seconds per training view of an image; without images, look them up in a table."""

import time
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from goalgrid.grid import catalog
from goalgrid.grid.columns import Columns
from goalgrid.grid.settings.image_views import View

TABLE = {"resized-crop": 3.1e-3, "scale-crop": 5.7e-3, "rand-augment": 9.1e-3}
"""Seconds per image by augmentation, for 640 x 480 JPEGs on one AMD EPYC core, at the published view sizes."""
OTHER = 3.1e-3
"""Seconds per image for other views."""
PROBED, PROBE_SECONDS = 16, 2.0
"""Images read per block in a measurement, and its duration."""


@dataclass(frozen=True)
class Decoding:
    """Core seconds per image, and their source."""

    seconds: float
    source: str

    def rate(self, threads: int) -> float:
        """Return the images decoded per second by `threads` threads."""
        return threads / self.seconds


@cache
def decoding(
    dataset: str, root: Path | None, view: View, columns: Columns = (), copies: Path | None = None
) -> Decoding:
    """Measure decoding on random training images, or look it up if there are none here; UserError if unreadable."""
    import numpy as np

    from goalgrid.retrieval.data import opening

    if root is None and not catalog.described(dataset).embedded:
        return Decoding(TABLE.get(view.augmentation, OTHER), "640 x 480 images on an EPYC core")
    images = opening.load(dataset, root, view, keep=False, columns=columns, copies=copies).train.images
    order, read = np.random.default_rng(0).permutation(len(images)), 0
    started, begun = time.process_time(), time.monotonic()  # CPU time: others may keep the cores busy
    while not read or (read < len(order) and time.monotonic() < begun + PROBE_SECONDS):
        rows = order[read : read + PROBED]
        images.gather(rows, read)
        read += len(rows)
    return Decoding((time.process_time() - started) / read, f"measured on {read} images")
