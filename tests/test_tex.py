"""Tests that compile LaTeX are skipped by the name of what this machine's TeX lacks."""

from pathlib import Path

import pytest

from .tex import compiled


@pytest.mark.parametrize(
    ("body", "packages", "name"),
    [
        ("x", "booktabs,no-such-package", "no-such-package"),
        ("\\input{needed-by-a-package.sty}", "booktabs", r"needed-by-a-package\.sty"),
    ],
)
def test_a_package_that_tex_lacks_is_named(body: str, packages: str, name: str, tmp_path: Path) -> None:
    with pytest.raises(pytest.skip.Exception, match=rf"{name}$|pdflatex is not installed"):
        compiled(body, packages, tmp_path)
