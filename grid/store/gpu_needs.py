"""Measured GPU memory of each kind of trial, and the fraction of a GPU to request for it."""

import math
from collections.abc import Iterable
from dataclasses import asdict, dataclass, fields

from goalgrid.grid.errors import UserError
from goalgrid.grid.identity import digest
from goalgrid.grid.store.files import read_json, write_json
from goalgrid.grid.store.home import Home

MARGIN = 1.15
"""Safety factor on the measured peak: batches of varying length cause fragmentation that few steps do not show."""

RESERVED = 2**30
"""Bytes of a GPU reserved for the launch itself, which may run a backbone there, and for a display."""

STEP = 0.01
"""Shares are multiples of this."""


@dataclass(frozen=True)
class Need:
    """GPU memory needed by one kind of trial, in bytes.

    Args:
        device: name of the GPU.
        total: memory of the GPU.
        context: memory of a process in addition to its tensors.
        alone: peak memory of a trial's tensors.
    """

    device: str
    total: float
    context: float
    alone: float

    def share(self) -> float:
        """Return the fraction of a GPU that a trial needs; at most 1 if the peak fits but the full margin does not."""
        exact = (MARGIN * self.alone + self.context) / (self.total - RESERVED)
        return min(1.0, round(math.ceil(exact / STEP - 1e-6) * STEP, 2))

    def bound(self, share: float) -> float:
        """Return the fraction of the GPU's memory that a process with this share may allocate."""
        return 1.0 if share >= 1 else max(0.0, share * (self.total - RESERVED) - self.context) / self.total

    def text(self) -> str:
        """Describe the need: `0.11 of NVIDIA A100-SXM4-40GB: 3.9 of 40 GB`."""
        needed, total = ((value / 1e9) for value in (MARGIN * self.alone + self.context, self.total))
        return f"{self.share():.2f} of {self.device}: {needed:.2g} of {total:.2g} GB"


def jobs_at_once(share: float, gpus: int) -> int:
    """Return how many jobs with this GPU share run concurrently; a share below 1 is never split over two GPUs.

    >>> [jobs_at_once(share, 2) for share in (0.25, 0.3, 0.6, 1, 2)]
    [8, 6, 2, 2, 1]
    """
    return gpus * int(1 / share + 1e-6) if share <= 1 else int(gpus / share)


def read(home: Home, kind: str) -> dict[str, Need]:
    """Read the needs of this kind of trial (see `speed_of`) by GPU; damaged files are ignored."""
    contents = [read_json(path) for path in sorted(home.memory.glob(f"{kind}-*.json"))]
    known = {field.name for field in fields(Need)}  # earlier versions wrote further fields
    needs = [Need(**{name: content[name] for name in known}) for content in contents if content.keys() >= known]
    return {need.device: need for need in needs}


def remember(home: Home, kind: str, need: Need) -> None:
    """Store a need for later launches; raise a UserError if the runs folder is not writable."""
    write_json(home.memory / f"{kind}-{digest(need.device)[:8]}.json", asdict(need), durable=False)


def smallest(needs: Iterable[Need]) -> Need:
    """Return the need on the GPU with the least memory, whose share is sufficient on every GPU."""
    return min(needs, key=lambda need: need.total)


def too_large(recipe: str, batch: int, device: str, *, taken: float, free: float, total: float) -> UserError:
    """Build the error for a trial that does not fit in GPU memory.

    Args:
        taken: bytes allocated at the failure.
        free: bytes that were free before.
        total: bytes of the GPU.
    """
    return UserError(
        f"out of memory: one trial of {recipe} at a batch of {batch} needs more than {taken / 1e9:.1f} GB of a GPU; "
        f"{device} has {total / 1e9:.1f} GB, {free / 1e9:.1f} GB were free. What helps: train.micro_batch or "
        "train.checkpoint_activations, a larger GPU, or several GPUs per trial (resources.replicas). These help, too, "
        'but change results, hence trial ids: train.precision = "bf16", a smaller train.batch_size.'
    )
