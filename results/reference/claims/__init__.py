"""The papers' claims as inequalities between cells: one TOML file per paper in this folder."""

from functools import cache
from typing import Literal

from goalgrid.grid.catalog import toml
from goalgrid.grid.settings.base import Settings


class Claim(Settings):
    """A claim: some cells are better than, or similar to, others, or several blocks rank their cells in the same order.

    Cells are named RECIPE:OBJECTIVE, with the paper's own word for a recipe or objective that does not exist here.
    Names are wildcard patterns, as in file names.
    """

    name: str
    sentence: str
    """The claim as the paper words it."""
    where: str
    """Where the paper makes the claim."""
    note: str = ""
    """How the sentence is interpreted here, or a misprint in it."""
    kind: Literal["better", "alike", "same order"] = "better"
    quantifier: Literal["every", "most"] = "every"
    """Whether the claim is about every comparison, or most of them ("generally")."""
    better: tuple[str, ...] = ()
    than: tuple[str, ...] = ()
    same: tuple[Literal["recipe", "objective", "pair", "triplet"], ...] = ("recipe",)
    """Axes on which compared cells must agree, in addition to data set, protocol and swept values."""
    equal: tuple[str, ...] = ()
    """Objective parameters that must be equal in both cells, as in the paper."""
    without: dict[str, float] = {}
    """Values of the better cell's objective parameters that the claim excludes."""
    across: str = ""
    """A swept setting whose values are compared; cells are then named RECIPE:OBJECTIVE@VALUE."""
    by: float | dict[str, float] = 0.0
    """Required lead in the metric's unit, for all metrics or by metric; for "alike": the largest difference."""
    times: float = 1.0
    """Required ratio to the other cell, allowing for rounding: 1.0135 for a gain of 1.4 %."""
    datasets: tuple[str, ...] = ("*",)
    """Patterns of the data sets that the claim is about."""
    metrics: tuple[str, ...] = ("rsum",)
    tables: tuple[str, ...]
    """The paper's tables that print the cells; empty if none does."""
    grid: str = ""
    """The shipped grid for the figure that shows the cells without printing numbers."""

    def lead(self, metric: str) -> float:
        """Return the lead that the claim requires in this metric."""
        return self.by.get(metric, 0.0) if isinstance(self.by, dict) else self.by


class PaperClaims(Settings):
    paper: str
    claims: tuple[Claim, ...]


@cache
def claims(name: str) -> PaperClaims:
    """Read the claims of a paper, named as in `results.reference.reading.PAPERS`."""
    return PaperClaims.model_validate(toml(__name__, name))
