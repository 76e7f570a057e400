"""Trainings that are cut off after some step, for tests of what goes on from there."""

from typing import Any

from goalgrid.runners.training.trainer import Hooks


class Killed(BaseException):
    """Stands for the end of a process, which nothing catches."""


def killed_after(step: int) -> Hooks:
    """Hooks that cut a training off after so many steps."""

    def beat(steps: int) -> bool:
        if steps == step:
            raise Killed
        return False

    return Hooks(beat=beat)


def without_seconds(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """A history without what differs from run to run."""
    return [{name: value for name, value in row.items() if name != "seconds"} for row in rows]
