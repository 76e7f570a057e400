"""Estimates for the trials of a recipe on a GPU: memory, seconds, and remedies if they do not fit."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from goalgrid.grid.errors import counted
from goalgrid.grid.groups import nested
from goalgrid.grid.store.gpu_needs import RESERVED, Need
from goalgrid.planning.costs import CLOCK, Key, Span

HOURS = CLOCK[1:]
ONCE = {"feature_seconds": "its frozen backbone", "caption_feature_seconds": "its frozen text network"}
"""Work done once for all trials, by its name in JSON."""


@dataclass(frozen=True)
class Remedy:
    """A setting that makes a trial fit on the GPU, and the bytes it then needs."""

    setting: str
    bytes: float
    slower: float | None = None
    """Factor on the time; None: unknown."""
    others: str = ""
    """A note that it makes another trial, and further remedies; empty if results do not change."""

    def __str__(self) -> str:
        price = f" ({self.slower:.2f} x the time)" if self.slower else ""
        return f"{self.setting}{price}{self.others}"


@dataclass(frozen=True)
class Estimate:
    """Estimated memory and time of a recipe's trials on a GPU."""

    need: Need
    memory: str
    """Source of the memory estimate."""
    hours: str
    """Source of the time estimate."""
    trials: int
    """Number of trials that are left to train."""
    seconds: Span | None
    """Seconds of all these trials together; None: the card's speed is unknown."""
    helps: Sequence[Remedy] = ()
    """Remedies if a trial does not fit."""
    once: Mapping[str, Span] = field(default_factory=dict)
    """Seconds of work done once for all trials, by the names in `ONCE`."""
    assumed: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """Properties that were assumed rather than read from the data, by data set."""
    decoding: str = ""
    """How fast images are decoded, and how fast the GPU consumes them; empty: none are decoded."""
    formats: Mapping[str, Span] = field(default_factory=dict)
    """Seconds in other number formats, by the setting that selects them."""
    host: float = 0.0
    """Bytes of host memory of a trial in addition to its process: a checkpoint being written, and cached images."""
    feeding: tuple[int, int] = (1, 1)
    """The number of trials that keep the GPU busy, and of threads that decode as fast as it consumes images."""

    @property
    def remedy(self) -> Remedy | None:
        """The first remedy that changes no result."""
        return next((remedy for remedy in self.helps if not remedy.others), None)

    @property
    def trainable(self) -> bool:
        """Whether the trial fits, possibly after a remedy that does not change results."""
        return self.fits or self.remedy is not None

    @property
    def slower(self) -> float:
        """The factor of the remedy on the time; 1 if a trial fits without it."""
        return 1.0 if self.fits or not self.remedy else self.remedy.slower or 1.0

    @property
    def trained(self) -> Span | None:
        """The seconds, with the remedy if a trial needs it; None: the card's speed is unknown."""
        return self.seconds * self.slower if self.seconds else None

    @property
    def bytes(self) -> float:
        return self.need.alone + self.need.context

    @property
    def fits(self) -> bool:
        return self.bytes <= self.need.total - RESERVED

    @property
    def together(self) -> int:
        """The number of trials that fit on the card at the same time."""
        return int(1 / self.need.share() + 1e-9) if self.fits else 0

    def lines(self, key: Key) -> list[str]:
        line = f"{key}: {_gigabytes(self.bytes)} of {self.need.total / 1e9:.3g} GB ({self.memory}), "
        line += "does not fit" if not self.fits else "fits, alone" if self.together == 1 else "fits"
        if self.together > 1:
            line += f"; room for {self.together} trials at a time"
        if self.seconds:
            line += f"; {counted(self.trials, 'trial')} {self.seconds.scaled(HOURS)} ({self.hours})"
        helps = "; ".join(f"{remedy}: {_gigabytes(remedy.bytes)} GB" for remedy in self.helps)
        once = [f"  {ONCE[what]} {span.scaled(HOURS)}, once for all (estimated)" for what, span in self.once.items()]
        decoding = [f"  {self.decoding}"] if self.decoding else []
        return [line, *([] if self.fits else [f"  what helps: {helps or 'a larger GPU'}"]), *decoding, *once]

    def to_dict(self) -> dict[str, Any]:
        return {
            "bytes": self.bytes, "memory_from": self.memory, "fits": self.fits, "together": self.together,
            "helps": {str(remedy): remedy.bytes for remedy in self.helps},
            "trials": self.trials, "seconds": self.seconds, "seconds_in": self.formats,
            "hours_from": self.hours if self.seconds else None, "decoding": self.decoding or None,
            **{what: self.once.get(what) for what in ONCE}, "assumed": "; ".join(assumed_of([self.assumed])),
        }  # fmt: skip


def assumed_of(parts: Iterable[Mapping[str, Sequence[str]]]) -> list[str]:
    """Report the assumptions, one line per data set that is not on this machine."""
    union = nested((dataset, what, None) for part in parts for dataset, assumed in part.items() for what in assumed)
    return [
        f"{dataset} is not on this machine (--root): assumed {' and '.join(assumed)}"
        for dataset, assumed in union.items()
    ]


def _gigabytes(size: float) -> str:
    return f"{size / 1e9:.1f}" if size < 1e10 else f"{size / 1e9:.0f}"
