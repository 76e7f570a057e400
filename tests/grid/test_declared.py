"""Declarations above losses, read without torch: imports of every form are followed, or refused by name."""

from pathlib import Path

import pytest

from goalgrid.grid.errors import UserError
from goalgrid.grid.objectives import declared

from ..conftest import ROOT, swapped

FILE, IMPORT = "objectives/hinge.py", "from goalgrid.grid.registration import objective\n"


def names_with(statement: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The losses that hinge.py declares with another import of the decorator."""
    text = swapped((ROOT / FILE).read_text(encoding="utf-8"), IMPORT, statement)
    (folder / FILE).parent.mkdir()
    (folder / FILE).write_text(text, encoding="utf-8")
    monkeypatch.setattr(declared, "PROGRAM", folder)
    return [name for name, _ in declared.declarations(FILE)]


@pytest.mark.parametrize(
    "statement",
    [
        "from ..grid.registration import objective\n",
        "from ..grid import registration\n\nobjective = registration.objective\n",
        "import goalgrid\n\nobjective = goalgrid.objective\n",
        "import goalgrid.grid.registration as ours\n\nobjective = ours.objective\n",
    ],
)
def test_the_decorator_is_found_by_any_import(statement: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    absolute = [name for name, _ in declared.declarations(FILE)]
    assert "triplet" in absolute
    assert names_with(statement, tmp_path, monkeypatch) == absolute


@pytest.mark.parametrize(
    ("statement", "form"),
    [
        ("from goalgrid.grid.registration import *\n", "from goalgrid.grid.registration import *"),
        ("from ....grid.registration import objective\n", "a relative import"),
    ],
)
def test_an_import_that_hides_names_is_refused_by_its_line(
    statement: str, form: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(UserError) as caught:
        names_with(statement, tmp_path, monkeypatch)
    assert str(caught.value).startswith(f"objectives/hinge.py, line 10: {form} cannot be followed; import the names")
