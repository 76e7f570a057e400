"""Time how long a core takes to make a training view of a picture; without pictures, look it up in a table."""

import time
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from goalgrid.grid import catalog
from goalgrid.grid.columns import Columns
from goalgrid.grid.settings.image_views import View

TABLE = {"resized-crop": 3.1e-3, "scale-crop": 5.7e-3, "rand-augment": 9.1e-3}
"""Seconds by augmentation, of JPEGs of 640 x 480 pixels on a core of an AMD EPYC, at the published sizes."""
OTHER = 3.1e-3
"""Of other views."""
PROBED, PROBE_SECONDS = 16, 2.0
"""Pictures that are read at a time, and for how long."""


@dataclass(frozen=True)
class Decoding:
    """The seconds of a core a picture, and their source."""

    seconds: float
    source: str

    def rate(self, threads: int) -> float:
        """Pictures a second."""
        return threads / self.seconds


@cache
def decoding(
    dataset: str, root: Path | None, view: View, columns: Columns = (), copies: Path | None = None
) -> Decoding:
    """Measured on pictures of the training split, spread over it, if they are here; UserError: they cannot be read."""
    import numpy as np

    from goalgrid.retrieval.data import opening

    if root is None and not catalog.described(dataset).embedded:
        return Decoding(TABLE.get(view.augmentation, OTHER), "pictures of 640 x 480 on an EPYC core")
    images = opening.load(dataset, root, view, keep=False, columns=columns, copies=copies).train.images
    order, read = np.random.default_rng(0).permutation(len(images)), 0
    started, begun = time.process_time(), time.monotonic()  # CPU time: others may keep the cores busy
    while not read or (read < len(order) and time.monotonic() < begun + PROBE_SECONDS):
        rows = order[read : read + PROBED]
        images.gather(rows, read)
        read += len(rows)
    return Decoding((time.process_time() - started) / read, f"measured on {read} pictures")
