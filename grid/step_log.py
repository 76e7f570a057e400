"""`goalgrid.log`: values that a user's own loss, encoder or scorer shows of each training step."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from goalgrid.grid.errors import UserError

TAKEN = ("epoch", "step", "seconds", "lr")
"""Names of the history that are not means over steps, in addition to those that begin with val_."""
_STEP = ContextVar[dict[str, list[Any]] | None]("values of this step", default=None)


def log(name: str, value: Any) -> None:
    """Show a value of this training step: history, trackers and figures have its mean over the steps of each epoch.

    Outside a training step, as in validation and evaluation, it does nothing. Log it in every step.

    Args:
        value: a number, or a tensor of one number, on any device; several in one step count by their mean.

    Raises:
        UserError: the name is invalid or the trainer's own, or the value is not a single number.
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
    """Collect what `log` is called with in this thread while the block runs."""
    values = dict[str, list[Any]]()
    token = _STEP.set(values)
    try:
        yield values
    finally:
        _STEP.reset(token)
