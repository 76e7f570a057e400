"""What all settings are made of: a closed, immutable model, and the mark of a field that came later."""

from typing import Any

from pydantic import BaseModel, ConfigDict


class Settings(BaseModel):
    """Immutable, complete, and closed: an unknown name is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class IdentityDefault:
    """Marks a field that was added after its peers: while it has this value, it is left out of a trial's identity.

    The value is what the program silently did before the field existed; it never changes, whatever the default does.
    """

    def __init__(self, value: Any) -> None:
        self.value = value
