"""The papers' equations: complete, of code and tests that exist, and docs/equations.md says the same."""

import pkgutil
import re

import pytest

from ...conftest import ROOT
from .equations_page import PaperEquations, lines, of_papers

WRITE = "python tests/results/reference/equations_page.py > docs/equations.md"
LAST = {"GOAL": 13, "SelHN": 16, "Unified loss": 27, "VSE+2AD": 6}
"""The last numbered equation of each paper."""


def test_the_page_is_the_list() -> None:
    page = (ROOT / "docs" / "equations.md").read_text(encoding="utf-8")
    assert page == "\n".join(lines()) + "\n", f"docs/equations.md is old; write it: {WRITE}"


@pytest.mark.parametrize("paper", of_papers(), ids=lambda paper: paper.paper)
def test_every_equation_stands_once_with_code_and_test_that_exist(paper: PaperEquations) -> None:
    numbers = [equation.number for equation in paper.equations]
    assert [number for number in numbers if number[0] == "("] == [f"({n + 1})" for n in range(LAST[paper.paper])]
    assert len(set(numbers)) == len(numbers)
    for equation in paper.equations:
        pkgutil.resolve_name(equation.code)
        file, _, function = equation.test.partition("::")
        assert (equation.verdict == "cannot be tested") == (not file), equation.number
        if file:
            assert re.search(rf"^def {function}\(", (ROOT / "tests" / file).read_text(encoding="utf-8"), re.M), function
        assert equation.why or equation.verdict == "holds"
