"""Events: messages from a running trial to its driver, as plain values that any driver can pass on."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

EventKind = Literal[
    "started", "step", "epoch", "done", "failed", "diverged", "busy", "retry", "interrupted", "stopped", "warning"
]


@dataclass(frozen=True)
class Event:
    """A change in the state of a trial."""

    trial_id: str
    kind: EventKind
    epoch: int = 0
    """Epochs trained so far, in "epoch" events."""
    metrics: dict[str, float] = field(default_factory=dict)
    """Validation metrics of an epoch; test metrics once the trial is done."""
    message: str = ""
    """Reason of a failure or stop, the process that trains the trial, or a warning."""
    step: int = 0
    steps: int = 0
    """Steps trained so far and in total, in "step" events, which are sent every second."""
    at: float = field(default_factory=lambda: time.monotonic())
    """Time of the event in seconds, by the clock of the trial's machine; events may arrive in batches."""


Listener = Callable[[Event], None]
