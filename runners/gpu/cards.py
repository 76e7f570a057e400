"""GPUs by name: memory, rates and bandwidth, for a plan before a GPU is rented."""

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from goalgrid.grid.errors import UserError, unknown

if TYPE_CHECKING:  # a plan without a GPU loads no torch
    from goalgrid.runners.gpu.trace import Work

LAUNCH = 35e-6
"""Seconds that Python and PyTorch need to launch a kernel of a training step: 22 to 37 microseconds beside an H100."""
SHORTEST = 2.5e-6
"""Seconds that a GPU takes for a kernel at least: 340 kernels of a small step kept an H100 busy for 1.7 ms."""
LARGE = (0.7, 0.85)
"""Shares of a data sheet's rate and bandwidth that large products and copies reach."""
HOPPER = (0.6, 0.7)
"""What the kernels of training steps reach on an H100, at most (docs/gpu.md)."""


@dataclass(frozen=True)
class Card:
    """A GPU: GiB that a program can use; 10^12 dense operations a second by number format, 0 if not known.

    Args:
        bandwidth: 10^9 bytes a second.
        says: part of the name that torch reports for this GPU.
        reached: shares of the rates and of the bandwidth that training reaches.
    """

    name: str
    memory: float
    fp32: float = 0.0
    tf32: float = 0.0
    half: float = 0.0
    bf16: float = 0.0
    bandwidth: float = 0.0
    says: str = ""
    reached: tuple[float, float] = LARGE

    @property
    def bytes(self) -> float:
        return self.memory * 2**30

    def rate(self, kind: str, *, tf32: bool = False) -> float:
        """Sustained operations a second of products in this number format."""
        rates = {"float32": self.tf32 if tf32 else self.fp32, "float16": self.half, "bfloat16": self.bf16}
        return 1e12 * self.reached[0] * (rates.get(kind) or self.fp32)

    def seconds(self, work: "Work", *, tf32: bool = False) -> tuple[float, float]:
        """Bounds on the seconds: the sum of all rooflines, and the same plus the launch of every kernel.

        In the lower one a kernel's start takes the GPU alone, while other trials launch theirs.
        """
        bandwidth = 1e9 * self.reached[1] * self.bandwidth
        products = sum(
            max(flops / self.rate(kind, tf32=tf32), moved / bandwidth)
            for kind, group in work.products.items()
            for flops, moved in group
        )
        roofline = products + work.bytes / bandwidth
        return roofline + SHORTEST * work.launches, roofline + LAUNCH * work.launches


CARDS = {
    card.name: card
    for card in (
        Card("t4", 14.6, 8.1, 8.1, 65, 8.1, 320, "T4"),
        Card("v100", 15.8, 15.7, 15.7, 125, 15.7, 900, "V100"),
        Card("a10g", 22.1, 31.2, 35, 70, 70, 600, "A10G"),
        Card("l4", 22.0, 30.3, 60, 121, 121, 300, "L4"),
        Card("a100-40", 39.4, 19.5, 156, 312, 312, 1555, "A100-SXM4-40GB"),
        Card("a100-80", 79.2, 19.5, 156, 312, 312, 2039, "A100-SXM4-80GB"),
        Card("h100", 79.2, 67, 494, 989, 989, 3350, "H100", HOPPER),
        Card("h200", 139.8, 67, 494, 989, 989, 4800, "H200", HOPPER),
        Card("rtx3090", 23.6, 35.6, 35.6, 71, 71, 936, "RTX 3090"),
        Card("rtx4090", 23.5, 82.6, 82.6, 165, 165, 1008, "RTX 4090"),
    )
}
"""Rates and bandwidth: NVIDIA's data sheets, dense. Memory: what torch reports, less than the sheets' round numbers.

T4 and V100 have no arithmetic of bfloat16 or TF32: they compute it at the rate of float32 at best.
"""


def card(name: str) -> Card:
    """A GPU by its name, or by its memory: `24GB`, of which a program can use a sixteenth less; UserError: unknown.

    >>> card("H100").memory, card("24GB").memory
    (79.2, 22.5)
    """
    if known := CARDS.get(name.lower()):
        return known
    size = re.fullmatch(r"(\d+(?:\.\d+)?)\s*(?:gb|gib|g)", name.lower())
    if size and float(size[1]) > 0:
        return Card(name, float(size[1]) * 15 / 16)
    if sizes := [known for known in CARDS if known.startswith(f"{name.lower()}-")]:
        raise UserError(f"--device {name!r} is sold with more than one memory. Give one of them: {', '.join(sizes)}.")
    raise UserError(unknown("GPU", name, list(CARDS), where="in --device", hint="Or give its memory: --device 24GB."))
