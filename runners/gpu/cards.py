"""GPUs by name: memory, rates and bandwidth, for a plan before a GPU is rented."""

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from goalgrid.grid.errors import UserError, unknown

if TYPE_CHECKING:  # a plan without a GPU loads no torch
    from goalgrid.runners.gpu.trace import Work

SUSTAINED = 0.7
"""Share of a data sheet's rate that large products reach."""
SUSTAINED_BYTES = 0.85
"""Share of a data sheet's bandwidth that copies reach."""
LAUNCH = 10e-6
"""Seconds that Python and PyTorch need to launch an operation."""


@dataclass(frozen=True)
class Card:
    """A GPU: GiB that a program can use; 10^12 dense operations a second by number format, 0 if not known.

    Args:
        bandwidth: 10^9 bytes a second.
        says: part of the name that torch reports for this GPU.
    """

    name: str
    memory: float
    fp32: float = 0.0
    tf32: float = 0.0
    half: float = 0.0
    bf16: float = 0.0
    bandwidth: float = 0.0
    says: str = ""

    @property
    def bytes(self) -> float:
        return self.memory * 2**30

    def rate(self, kind: str, *, tf32: bool = False) -> float:
        """Sustained operations a second of products in this number format."""
        rates = {"float32": self.tf32 if tf32 else self.fp32, "float16": self.half, "bfloat16": self.bf16}
        return 1e12 * SUSTAINED * (rates.get(kind) or self.fp32)

    def seconds(self, work: "Work", *, tf32: bool = False) -> tuple[float, float]:
        """Bounds on the seconds: the sum of all rooflines, and the same plus the launch of every operation."""
        bandwidth = 1e9 * SUSTAINED_BYTES * self.bandwidth
        products = sum(
            max(flops / self.rate(kind, tf32=tf32), moved / bandwidth)
            for kind, group in work.products.items()
            for flops, moved in group
        )
        roofline = products + work.bytes / bandwidth
        return roofline, roofline + LAUNCH * work.launches


CARDS = {
    card.name: card
    for card in (
        Card("t4", 14.6, 8.1, 8.1, 65, 8.1, 320, "T4"),
        Card("v100", 15.8, 15.7, 15.7, 125, 15.7, 900, "V100"),
        Card("a10g", 22.1, 31.2, 35, 70, 70, 600, "A10G"),
        Card("l4", 22.0, 30.3, 60, 121, 121, 300, "L4"),
        Card("a100-40", 39.4, 19.5, 156, 312, 312, 1555, "A100-SXM4-40GB"),
        Card("a100-80", 79.2, 19.5, 156, 312, 312, 2039, "A100-SXM4-80GB"),
        Card("h100", 79.2, 67, 494, 989, 989, 3350, "H100"),
        Card("h200", 139.8, 67, 494, 989, 989, 4800, "H200"),
        Card("rtx3090", 23.6, 35.6, 35.6, 71, 71, 936, "RTX 3090"),
        Card("rtx4090", 23.5, 82.6, 82.6, 165, 165, 1008, "RTX 4090"),
    )
}
"""Rates and bandwidth: NVIDIA's data sheets, dense. Memory: what torch reports, less than the sheets' round numbers.

T4 and V100 have no arithmetic of bfloat16 or TF32: they compute it at the rate of float32 at best.
"""


def card(name: str) -> Card:
    """A GPU by its name, or by its memory: `24GB`, of which a program can use a sixteenth less.

    Raises:
        UserError: no GPU is known by this name.

    >>> card("H100").memory, card("24GB").memory
    (79.2, 22.5)
    """
    known = CARDS.get(name.lower())
    if known:
        return known
    size = re.fullmatch(r"(\d+(?:\.\d+)?)\s*(?:gb|gib|g)", name.lower())
    if size and float(size[1]) > 0:
        return Card(name, float(size[1]) * 15 / 16)
    if sizes := [known for known in CARDS if known.startswith(f"{name.lower()}-")]:
        raise UserError(f"--device {name!r} is sold with more than one memory. Give one of them: {', '.join(sizes)}.")
    raise UserError(unknown("GPU", name, list(CARDS), where="in --device", hint="Or give its memory: --device 24GB."))
