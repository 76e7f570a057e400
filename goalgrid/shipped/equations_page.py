"""`goalgrid equations`: each equation of the papers, where it is computed, its test, and whether it holds."""

from collections import Counter
from collections.abc import Iterator, Sequence

from goalgrid.results.reference.equations import VERDICTS, Equation, PaperEquations


def lines(papers: Sequence[PaperEquations]) -> Iterator[str]:
    """A line for each equation below the name of its paper, and the count."""
    for paper in papers:
        yield paper.paper
        width = max(len(equation.number) for equation in paper.equations)
        for equation in paper.equations:
            verdict = equation.verdict.capitalize() + (f": {equation.why}" if equation.why else "")
            yield f"  {equation.number:{width}}  {equation.says}. {verdict} [{equation.code}]"
        yield ""
    yield count(papers)


def count(papers: Sequence[PaperEquations]) -> str:
    """How many equations have which verdict."""
    every = [equation for paper in papers for equation in paper.equations]
    found = Counter[str](equation.verdict for equation in every)
    return (
        f"{len(every)} equations and sentences, by verdict: {', '.join(f'{name} {found[name]}' for name in VERDICTS)}."
    )


def markdown(papers: Sequence[PaperEquations]) -> Iterator[str]:
    """The page docs/equations.md, with these papers."""
    yield from (*PAGE.splitlines(), "", count(papers))
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
which equations do not hold as printed. The program wrote this page: `goalgrid equations --format markdown`.
`goalgrid equations selhn` shows a single paper.

**Misprint**: the figures or the code of the paper show that it means another equation. **Does not hold**: the equation
or the sentence is wrong under any reading. The tests stand in `tests/`; the tests of misprints are in
`tests/objectives/test_printed_equations.py`."""
