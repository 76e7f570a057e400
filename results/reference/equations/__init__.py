"""The papers' equations, each with its code, its test and whether it holds: a TOML file for every paper."""

from collections.abc import Sequence
from functools import cache
from typing import Literal, get_args

from goalgrid.grid.listed import toml
from goalgrid.grid.settings.base import Settings
from goalgrid.results.reference.reading import PAPERS

Verdict = Literal["holds", "misprint", "does not hold", "cannot be tested"]
"""misprint: the paper means another equation, by its own figures or code."""

VERDICTS: tuple[Verdict, ...] = get_args(Verdict)


class Equation(Settings):
    """An equation, or a sentence about equations."""

    number: str
    """As printed, e.g. (3); of a sentence, its section."""
    says: str
    code: str
    """Dotted name of what computes it here, or of what comes nearest."""
    test: str = ""
    """FILE::FUNCTION in tests/; empty where nothing can be tested."""
    verdict: Verdict
    why: str = ""


class PaperEquations(Settings):
    """The equations of a paper in its order."""

    paper: str
    equations: tuple[Equation, ...]


@cache
def equations(name: str) -> PaperEquations:
    """The equations of a paper in `PAPERS`."""
    return PaperEquations.model_validate(toml(__name__, name))


def of_papers(names: Sequence[str] = PAPERS) -> list[PaperEquations]:
    """The equations of several papers."""
    return [equations(name) for name in names]
