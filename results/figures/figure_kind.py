"""What a kind of figure is."""

from collections.abc import Callable
from dataclasses import dataclass

from matplotlib.figure import Figure

from results.figures.study import Study


@dataclass(frozen=True)
class FigureKind:
    """One kind of figure."""

    place: int
    """Where it stands among the figures of a report."""
    draw: Callable[[Study], Figure | None]
    """Draws a block; None if the block has nothing to draw."""
