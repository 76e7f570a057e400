"""The papers' equations, each with its code, its test and whether it holds: a TOML file for every paper."""

import tomllib
from collections.abc import Sequence
from functools import cache
from importlib import resources
from typing import Literal

from grid.settings.base import Settings
from results.reference.reading import PAPERS

VERDICTS = ("holds", "misprint", "does not hold", "cannot be tested")


class Equation(Settings):
    """An equation, or a sentence about equations."""

    number: str
    """As printed, e.g. (3); of a sentence, its section."""
    says: str
    code: str
    """Dotted name of what computes it here, or of what comes nearest."""
    test: str = ""
    """FILE::FUNCTION in tests/; empty where nothing can be tested."""
    verdict: Literal["holds", "misprint", "does not hold", "cannot be tested"]
    """misprint: the paper means another equation, by its own figures or code."""
    why: str = ""


class PaperEquations(Settings):
    """The equations of a paper in its order."""

    paper: str
    equations: tuple[Equation, ...]


@cache
def equations(name: str) -> PaperEquations:
    """The equations of a paper in `PAPERS`."""
    text = resources.files(__name__).joinpath(f"{name}.toml").read_text(encoding="utf-8")
    return PaperEquations.model_validate(tomllib.loads(text))


def of_papers(names: Sequence[str] = PAPERS) -> list[PaperEquations]:
    """The equations of several papers."""
    return [equations(name) for name in names]
