"""What a running trial tells its driver; plain values, so that any driver can carry them."""

from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

Kind = Literal["started", "epoch", "done", "failed", "busy", "retry", "stopped", "warning"]


@dataclass(frozen=True)
class Event:
    """One step in a trial's life."""

    trial_id: str
    kind: Kind
    epoch: int = 0
    """Epochs behind it."""
    epochs: int = 0
    """Epochs it will train in all."""
    metrics: dict[str, float] = field(default_factory=dict)
    """Validation metrics of an epoch; test metrics when done."""
    message: str = ""
    """Why it failed, who else trains it, or what a user should know."""

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


Report = Callable[[Event], None]
