"""GPU memory: what trials of a kind need, as measured and kept in the runs folder, and what share of a GPU that is."""

import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields

from grid.errors import UserError
from grid.identity import digest
from grid.store.files import write_json
from grid.store.home import Home

MARGIN = 1.15
"""Times the measured peak: batches of many lengths leave gaps that few steps do not show."""

RESERVED = 2**30
"""Bytes of a GPU that no job gets: for the launch itself, which may have run a backbone there, and for a display."""

STEP = 0.01
"""Shares are multiples of this."""


@dataclass(frozen=True)
class Need:
    """Bytes of a GPU's memory that trials of one kind need.

    Args:
        device: what the GPU calls itself.
        total: bytes that it has.
        context: of a process, beside what it allocates.
        alone: that a trial allocates at its peak.
    """

    device: str
    total: float
    context: float
    alone: float

    def share(self) -> float:
        """Of one trial; what was measured fits, if without all of the margin."""
        return min(1.0, self._share(self.alone))

    def bound(self, share: float) -> float:
        """The part of the GPU's memory that a process with this share may allocate."""
        return 1.0 if share >= 1 else max(0.0, share * (self.total - RESERVED) - self.context) / self.total

    def text(self) -> str:
        """`0.11 of NVIDIA A100-SXM4-40GB: 3.9 of 40 GB`."""
        needed, total = ((value / 1e9) for value in (MARGIN * self.alone + self.context, self.total))
        return f"{self.share():.2f} of {self.device}: {needed:.2g} of {total:.2g} GB"

    def _share(self, peak: float) -> float:
        return rounded_up((MARGIN * peak + self.context) / (self.total - RESERVED))


def rounded_up(share: float) -> float:
    """
    >>> rounded_up(0.121), rounded_up(0.12), rounded_up(3 * 0.1)
    (0.13, 0.12, 0.3)
    """
    return round(math.ceil(share / STEP - 1e-6) * STEP, 2)


def read(home: Home, kind: str) -> list[Need]:
    """What is known of trials of this kind, of each GPU on which they were measured.

    Args:
        kind: what `probes.speed_of` gives.
    """
    return [_parsed(path.read_text(encoding="utf-8")) for path in sorted(home.memory.glob(f"{kind}-*.json"))]


def known(home: Home, kind: str, device: str) -> Need | None:
    """What is known of them on this GPU."""
    return next((need for need in read(home, kind) if need.device == device), None)


def remember(home: Home, kind: str, need: Need) -> None:
    """Keep it for later launches.

    Raises:
        UserError: the runs folder cannot be written.
    """
    write_json(home.memory / f"{kind}-{digest(need.device)[:8]}.json", asdict(need), durable=False)


def smallest(needs: Sequence[Need]) -> Need:
    """That of the GPU with the least memory: its shares hold on any of them."""
    return min(needs, key=lambda need: need.total)


def too_large(recipe: str, batch: int, device: str, *, taken: float, free: float, total: float) -> UserError:
    """One trial does not fit on a GPU.

    Args:
        taken: bytes that it had allocated when there were no more.
        free: bytes that nobody used before.
    """
    return UserError(
        f"out of memory: one trial of {recipe} at a batch of {batch} needs more than {taken / 1e9:.1f} GB of a GPU; "
        f"{device} has {total / 1e9:.1f} GB, {free / 1e9:.1f} GB were free. What helps: a smaller train.batch_size, "
        'train.precision = "bf16", a larger GPU, or several of them for a trial (resources.replicas).'
    )


def _parsed(text: str) -> Need:
    """What `remember` wrote, by this version or an earlier one, which kept more."""
    content = json.loads(text)
    return Need(**{field.name: content[field.name] for field in fields(Need)})
