"""The papers' sentences as inequalities over cells: a TOML file for every paper; the folder is the list."""

from functools import cache
from typing import Literal

from goalgrid.grid.catalog import toml
from goalgrid.grid.settings.base import Settings


class Claim(Settings):
    """A sentence: cells that it calls better than others or like others, or blocks of which the order is the same.

    A cell's name is RECIPE:OBJECTIVE; of a printed row without a recipe or an objective here, the paper's own word
    replaces it. Names are patterns, as in file names.
    """

    name: str
    sentence: str
    """As the paper has it."""
    where: str
    note: str = ""
    """Note on the sentence: how it is read here, or a misprint in it."""
    kind: Literal["better", "alike", "same order"] = "better"
    quantifier: Literal["every", "most"] = "every"
    """most: of a sentence that says "generally"."""
    better: tuple[str, ...] = ()
    than: tuple[str, ...] = ()
    same: tuple[Literal["recipe", "objective", "pair", "triplet"], ...] = ("recipe",)
    """Axes on which two compared cells agree, in addition to data set, protocol and swept values."""
    equal: tuple[str, ...] = ()
    """Parameters of the objectives that the paper gives both cells the same value of."""
    without: dict[str, float] = {}
    """Parameters of the better cell's objective, each with the value that the sentence leaves out."""
    across: str = ""
    """A swept setting, of which compared cells have different values; a cell's name is RECIPE:OBJECTIVE@VALUE then."""
    by: float | dict[str, float] = 0.0
    """How much better, in the metric's unit, or that of each metric; of "alike", within how much."""
    times: float = 1.0
    """How many times as much as the other, as rounded: of a gain of 1.4 %, 1.0135."""
    datasets: tuple[str, ...] = ("*",)
    """Patterns of the data sets that the sentence is about."""
    metrics: tuple[str, ...] = ("rsum",)
    tables: tuple[str, ...]
    """The paper's tables that print the cells; none: no table does."""
    grid: str = ""
    """The shipped grid of the figure that shows the cells, without numbers."""

    def lead(self, metric: str) -> float:
        """Return by how much the better cell leads."""
        return self.by.get(metric, 0.0) if isinstance(self.by, dict) else self.by


class PaperClaims(Settings):
    paper: str
    claims: tuple[Claim, ...]


@cache
def claims(name: str) -> PaperClaims:
    """Read the claims of a paper in `results.reference.reading.PAPERS`."""
    return PaperClaims.model_validate(toml(__name__, name))
