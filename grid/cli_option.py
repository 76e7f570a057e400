"""Dataclass fields that are also command-line options, with default and help text."""

from dataclasses import field
from typing import Any


def option(default: Any, meaning: str, metavar: str | None = None, **more: Any) -> Any:
    """Declare a field that is also a command-line option; `more` is passed to the option, e.g. `min=1`."""
    return field(default=default, metadata={"help": meaning, "metavar": metavar, **more})
