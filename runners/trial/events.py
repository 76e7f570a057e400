"""Events: the reports of a running trial to its driver, as plain values for any driver."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

EventKind = Literal[
    "started", "step", "epoch", "done", "failed", "diverged", "busy", "retry", "interrupted", "stopped", "warning"
]


@dataclass(frozen=True)
class Event:
    """A step in a trial's life."""

    trial_id: str
    kind: EventKind
    epoch: int = 0
    """Epochs trained so far; of the event "epoch"."""
    metrics: dict[str, float] = field(default_factory=dict)
    """Validation metrics of an epoch; test metrics once the trial is done."""
    message: str = ""
    """Why the trial failed or was stopped, which process trains it, or a warning."""
    step: int = 0
    steps: int = 0
    """Steps trained so far, and those of the whole training; of the event "step", which comes every second."""
    at: float = field(default_factory=lambda: time.monotonic())
    """Seconds on the clock of the trial's machine: events of an attempt may arrive together."""


Listener = Callable[[Event], None]
