"""`goalgrid.log`: log values from a user-defined loss, encoder or scorer at each training step."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from goalgrid.grid.errors import UserError

TAKEN = ("epoch", "step", "seconds", "lr")
"""Reserved names of the history, in addition to those that begin with val_."""
_STEP = ContextVar[dict[str, list[Any]] | None]("values of this step", default=None)


def log(name: str, value: Any) -> None:
    """Log a value of the current training step; history, trackers and figures show its mean over each epoch.

    Log the value in every step. Outside training steps, e.g. in validation, the call has no effect.

    Args:
        value: a number, or a tensor with one number on any device; several values in one step are averaged.

    Raises:
        UserError: the name is invalid or reserved, or the value is not a single number.
    """
    values = _STEP.get()
    if values is None:
        return
    if not re.fullmatch(r"(?!val_)[A-Za-z]\w*", name) or name in TAKEN:
        raise UserError(f"goalgrid.log({name!r}, ...): a name has letters, digits and _, and is not the trainer's own.")
    shape = getattr(value, "shape", () if isinstance(value, int | float) else None)
    if shape not in ((), (1,)):
        got = repr(value) if shape is None else f"values of shape {tuple(shape)}"
        raise UserError(f"goalgrid.log({name!r}, ...) got {got}. Give one number.")
    values.setdefault(name, []).append(value)


@contextmanager
def of_step() -> Iterator[dict[str, list[Any]]]:
    """Collect the values that are logged in this thread while the block runs."""
    values = dict[str, list[Any]]()
    token = _STEP.set(values)
    try:
        yield values
    finally:
        _STEP.reset(token)
