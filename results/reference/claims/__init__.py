"""The papers' sentences as inequalities over cells: a TOML file for every paper; the folder is the list."""

from functools import cache
from typing import Literal

from goalgrid.grid.listed import toml
from goalgrid.grid.settings.base import Settings


class Claim(Settings):
    """A sentence: cells that it calls better than others, or blocks in which it sees the same order of cells.

    A cell's name is RECIPE:OBJECTIVE; of a printed row without a recipe or an objective here, the paper's own word
    stands instead. Names are patterns, as in file names.
    """

    name: str
    sentence: str
    """As the paper has it."""
    where: str
    kind: Literal["better", "same order"] = "better"
    quantifier: Literal["every", "most"] = "every"
    """most: of a sentence that says "generally"."""
    better: tuple[str, ...] = ()
    than: tuple[str, ...] = ()
    same: tuple[Literal["recipe", "objective", "pair", "triplet"], ...] = ("recipe",)
    """What two compared cells have in common, beside data set, protocol and swept values."""
    equal: tuple[str, ...] = ()
    """Parameters of the objectives that the paper gives both cells the same value of."""
    metrics: tuple[str, ...] = ("rsum",)
    tables: tuple[str, ...]
    """The paper's tables that print the cells."""


class PaperClaims(Settings):
    """The claims of a paper."""

    paper: str
    claims: tuple[Claim, ...]


@cache
def claims(name: str) -> PaperClaims:
    """The claims of a paper in `results.reference.reading.PAPERS`."""
    return PaperClaims.model_validate(toml(__name__, name))
