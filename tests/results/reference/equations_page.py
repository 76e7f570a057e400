"""The page of the papers' equations: `python tests/results/reference/equations_page.py > docs/equations.md`."""

import sys
import tomllib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Literal, get_args

from goalgrid.grid.settings.base import Settings
from goalgrid.results.reference.reading import PAPERS

Verdict = Literal["holds", "misprint", "does not hold", "cannot be tested"]
"""misprint: the paper means another equation, by its own figures or code."""


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


def of_papers() -> list[PaperEquations]:
    """The equations of every paper, from the file of its name."""
    files = [Path(__file__).parent / "equations" / f"{name}.toml" for name in PAPERS]
    return [PaperEquations.model_validate(tomllib.loads(file.read_text(encoding="utf-8"))) for file in files]


def lines() -> Iterator[str]:
    """The page docs/equations.md."""
    papers = of_papers()
    counts = Counter[str](equation.verdict for paper in papers for equation in paper.equations)
    by_verdict = ", ".join(f"{name} {counts[name]}" for name in get_args(Verdict))
    yield from (*PAGE.splitlines(), "", f"{counts.total()} equations and sentences, by verdict: {by_verdict}.")
    for paper in papers:
        yield from ("", f"## {paper.paper}", "", "| equation | says | here | test | verdict |", "|---|---|---|---|---|")
        yield from map(_row, paper.equations)


def _row(equation: Equation) -> str:
    test = equation.test.partition("::")[2]
    tested = f"`{test}`" if test else ""
    verdict = f"**{equation.verdict}**" if equation.verdict in ("misprint", "does not hold") else equation.verdict
    why = f": {equation.why}" if equation.why else ""
    cells = (equation.number, equation.says, f"`{equation.code}`", tested, verdict + why)
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


PAGE = """# The papers' equations

After reading this page you know where the program computes each equation of the four papers, which test checks it, and
which equations do not hold as printed. The tests wrote this page: `python tests/results/reference/equations_page.py`.

**Misprint**: the figures or the code of the paper show that it means another equation. **Does not hold**: the equation
or the sentence is wrong under any reading. The tests are in `tests/`; the tests of misprints are in
`tests/objectives/test_printed_equations.py`."""

if __name__ == "__main__":
    sys.stdout.writelines(f"{line}\n" for line in lines())
