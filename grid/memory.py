"""GPU memory: what trials of a kind need, as measured and kept in the runs folder, and what share of a GPU that is."""

import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass

from grid.errors import UserError
from grid.files import write_json
from grid.home import Home
from grid.identity import digest

MARGIN = 1.15
"""Times the measured peak: batches of many lengths leave gaps that few steps do not show."""

RESERVED = 2**30
"""Bytes of a GPU that no job gets: for the launch itself, which may have run a backbone there, and for a display."""

STEP = 0.01
"""Shares are multiples of this."""


@dataclass(frozen=True)
class PackNeed:
    """Bytes that a pack allocates at its peak, which grow with its trials.

    Args:
        base: of any pack.
        seed: what each seed adds, whose batches are read for all of its trials.
        trial: what each trial adds.
    """

    base: float
    seed: float
    trial: float

    @classmethod
    def of(cls, two: float, four: float, two_and_two: float) -> "PackNeed":
        """From the peaks of two and of four trials of one seed, and of two trials of each of two seeds."""
        trial, seed = max(0.0, (four - two) / 2), max(0.0, two_and_two - four)
        return cls(max(0.0, two - seed - 2 * trial), seed, trial)

    def peak(self, trials: Sequence[int]) -> float:
        """Of a pack with so many trials of each seed."""
        return self.base + self.seed * len(trials) + self.trial * sum(trials)


@dataclass(frozen=True)
class Need:
    """Bytes of a GPU's memory that trials of one kind need.

    Args:
        device: what the GPU calls itself.
        total: bytes that it has.
        context: of a process, beside what it allocates.
        alone: that a trial allocates at its peak.
        pack: of trials side by side; None: not measured.
    """

    device: str
    total: float
    context: float
    alone: float
    pack: PackNeed | None = None

    def share(self) -> float:
        """Of one trial; what was measured fits, if without all of the margin."""
        return min(1.0, self._share(self.alone))

    def pack_share(self, trials: Sequence[int]) -> float:
        """Of a pack with so many trials of each seed; above 1 it does not fit."""
        assert self.pack is not None
        return self._share(self.pack.peak(trials))

    def bound(self, share: float) -> float:
        """The part of the GPU's memory that a process with this share may allocate."""
        return 1.0 if share >= 1 else max(0.0, share * (self.total - RESERVED) - self.context) / self.total

    def text(self) -> str:
        """`0.11 of NVIDIA A100-SXM4-40GB: 3.9 of 40 GB`."""
        needed, total = ((value / 1e9) for value in (MARGIN * self.alone + self.context, self.total))
        further = "" if self.pack is None else f", each further trial of a pack {MARGIN * self.pack.trial / 1e9:.2g} GB"
        return f"{self.share():.2f} of {self.device}: {needed:.2g} of {total:.2g} GB{further}"

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
    content = json.loads(text)
    pack = content.pop("pack")
    return Need(**content, pack=pack and PackNeed(**pack))
