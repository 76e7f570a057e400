"""Curves whose numbers a paper prints: a TOML file a figure; the folder is the list."""

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import resources


@dataclass(frozen=True)
class PrintedCurve:
    """Values over epochs, a line an objective.

    Args:
        source: paper and figure.
        quantity: name in the history of what was printed.
        lines: values at `epochs`, by objective.
    """

    source: str
    quantity: str
    epochs: Sequence[int]
    lines: Mapping[str, Sequence[float]]


def names() -> list[str]:
    """Names of the curves, e.g. `2ad-figureA1`."""
    return sorted(
        path.name.removesuffix(".toml") for path in resources.files(__name__).iterdir() if path.name.endswith(".toml")
    )


def printed_curve(name: str) -> PrintedCurve:
    """A curve in `names()`."""
    text = resources.files(__name__).joinpath(f"{name}.toml").read_text(encoding="utf-8")
    return PrintedCurve(**tomllib.loads(text))
