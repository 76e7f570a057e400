"""Fields of dataclasses that the command line offers as options, each with its default and meaning."""

from dataclasses import field
from typing import Any


def option(default: Any, meaning: str, metavar: str | None = None, **more: Any) -> Any:
    """Declare a field that is also an option of the command line; `more` is for the option, e.g. `min=1`."""
    return field(default=default, metadata={"help": meaning, "metavar": metavar, **more})
