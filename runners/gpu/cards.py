"""GPU models by name: memory, compute rates and bandwidth, to plan for a GPU that is not here."""

import re
from dataclasses import dataclass

from goalgrid.grid import catalog
from goalgrid.grid.errors import UserError, unknown


@dataclass(frozen=True)
class Card:
    """A GPU model: usable memory in GiB, and dense 10^12 operations per second by number format (0 if unknown).

    Args:
        bandwidth: in 10^9 bytes per second.
        says: substring of the name that torch reports for this GPU.
        products, copies: shares of the compute rate and of the bandwidth that training reaches.
    """

    name: str
    memory: float
    fp32: float = 0.0
    tf32: float = 0.0
    half: float = 0.0
    bf16: float = 0.0
    bandwidth: float = 0.0
    says: str = ""
    products: float = 0.7
    copies: float = 0.85

    @property
    def bytes(self) -> float:
        return self.memory * 2**30

    def rate(self, kind: str, *, tf32: bool = False) -> float:
        """Return the sustained operations per second of matrix products in this number format."""
        rates = {"float32": self.tf32 if tf32 else self.fp32, "float16": self.half, "bfloat16": self.bf16}
        return 1e12 * self.products * (rates.get(kind) or self.fp32)


CARDS = {name: Card(name, **known) for name, known in catalog.toml("goalgrid.runners.gpu", "cards").items()}


def card(name: str) -> Card:
    """Return a GPU by name or by memory (`24GB`, of which 15/16 are usable); raise UserError if unknown.

    >>> card("H100").memory, card("24GB").memory
    (79.2, 22.5)
    """
    if known := CARDS.get(name.lower()):
        return known
    size = re.fullmatch(r"(\d+(?:\.\d+)?)\s*(?:gb|gib|g)", name.lower())
    if size and float(size[1]) > 0:
        return Card(name, float(size[1]) * 15 / 16)
    if sizes := [known for known in CARDS if known.startswith(f"{name.lower()}-")]:
        raise UserError(f"--device {name!r} exists with several memory sizes. Choose one: {', '.join(sizes)}.")
    raise UserError(unknown("GPU", name, list(CARDS), where="in --device", hint="Or give its memory: --device 24GB."))
