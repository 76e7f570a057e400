"""What counts as the code that a computation uses: read from a small project that is edited on purpose."""

import re
from pathlib import Path

import pytest

from goalgrid.grid.imports import NotFollowed
from goalgrid.results.records.sources import Sources, texts_of

PROJECT = {
    "top/__init__.py": '"""A room."""\n',
    "top/begin.py": '''"""Begins."""
from math import sqrt
from typing import TYPE_CHECKING

import top.tools as tools
from low import data
from low.ways import WAYS

if TYPE_CHECKING:
    from low.unused import Kind

FACTOR = 2
"""Of everything."""


class Begin:
    """It begins."""

    def __init__(self, settings: "data.Settings", kind: "Kind") -> None:
        assert settings.way, "no way is named"
        self.way = WAYS[settings.way]

    def run(self, x: float) -> float:
        from low.late import late

        if x < 0:
            raise ValueError(f"{x} is negative")
        return sqrt(tools.scaled(self.way(x)) * FACTOR) + late(x) + tools.shifted(x, by=1)


def unused() -> None:
    print("unused")
''',
    "top/tools.py": '''"""Tools."""
import low.effects
from low import LIMIT


def scaled(x: float) -> float:
    return min(x / 3, LIMIT)


def shifted(x: float, *, by: float) -> float:
    low: float = x - by
    high = x + by
    return low * high + max(part.real for part in (low, high) if part)
''',
    "low/__init__.py": '"""A room below."""\nfrom low.data import LIMIT\n',
    "low/data.py": '''"""Data."""
from typing import ClassVar

from pydantic import BaseModel

LIMIT = 10


class Settings(BaseModel):
    """What is set."""

    sort: ClassVar[str] = "plain"
    way: str = "up"

    @property
    def steep(self) -> bool:
        return self.way == "up"
''',
    "low/ways.py": '''"""Ways."""
from low.data import LIMIT


def up(x: float) -> float:
    return x + 1


def down(x: float) -> float:
    return x - 1


def kept(way: object) -> object:
    KEPT.append(way)
    return way


def declare(name: str) -> object:
    return kept


@declare("left")
def leftwards(x: float) -> float:
    return -x


KEPT = []
WAYS = {"up": up, "down": lambda x: down(x)}
STEPS = {"up": 1, "sideways": 2}
''',
    "low/effects.py": '''"""Effects."""
import os

from low.ways import kept

os.environ["EFFECT"] = "1"


@kept
def seven() -> int:
    return 7
''',
    "low/late.py": '''"""Late."""
from low.ways import STEPS


def late(x: float) -> float:
    return sum(STEPS.values()) + x
''',
    "low/unused.py": '"""Unused."""\nclass Kind:\n    size = 3\n',
}
ROOTS = ("top.begin.Begin", "low.data.Settings")
NAMES = frozenset(("up", "down", "left"))

WAYS = ("up", "kept")
"""Functions that may be entries."""

SAME = {
    "a comment": ("top/begin.py", "FACTOR = 2", "FACTOR = 2  # or more"),
    "a module's docstring": ("top/begin.py", '"""Begins."""', '"""It begins here."""'),
    "a class's docstring": ("top/begin.py", '"""It begins."""', '"""Here."""'),
    "the docstring of a constant": ("top/begin.py", '"""Of everything."""', '"""Of all."""'),
    "a line break": ("top/tools.py", "min(x / 3, LIMIT)", "min(\n        x / 3,\n        LIMIT,\n    )"),
    "what an error says": ("top/begin.py", "is negative", "is below 0"),
    "what an assertion says": ("top/begin.py", "no way is named", "which way?"),
    "the annotation of an argument": ("top/tools.py", "(x: float)", "(x: int)"),
    "a function that nothing uses": ("top/begin.py", 'print("unused")', 'print("never")'),
    "what only annotations name": ("low/unused.py", "size = 3", "size = 4"),
    "the default of a setting": ("low/data.py", 'way: str = "up"', 'way: str = "down"'),
    "an entry that is not named": ("low/ways.py", "down(x)}", "down(x) + 1}"),
    "a new entry": ("low/ways.py", '"down": lambda', '"left": up, "down": lambda'),
    "what that entry uses": ("low/ways.py", "x - 1", "x - 2"),
    "what is declared under another name": ("low/ways.py", "return -x", "return x"),
    "what declares another name": ("low/ways.py", '@declare("left")', '@declare("left", size=2)'),
}
_, SHIFTED = PROJECT["top/tools.py"].split("def shifted")
LOCALS = {
    "the name of a local": ("low", "least"),
    "the name of a local, that of a definition": ("high", "scaled"),
    "the name of a local, that of another variable elsewhere": ("part", "x1"),
    "the annotation of a local": ("low: float = ", "low = "),
    "an annotation without a value": ("    low: float = ", "    low: float\n    low = "),
}
"""What changes nothing in `shifted`, each time it occurs."""
EXCHANGED = {
    "two locals in an expression": ("low * high", "high * high"),
    "the order of locals that are bound": ("part in (low, high)", "part in (high, low)"),
    "a local and a parameter": ("x + by", "low + by"),
    "a local and a global": ("if part", "if LIMIT"),
    "an inner and an outer local": ("part.real", "low.real"),
    "the name of a parameter": ("by", "of"),
    "an attribute": ("part.real", "part.imag"),
}
"""What changes `shifted`."""
OTHER = {
    "a constant": ("top/begin.py", "FACTOR = 2", "FACTOR = 3"),
    "the condition of an error": ("top/begin.py", "x < 0", "x <= 0"),
    "an attribute of an imported module": ("top/tools.py", "x / 3", "x / 4"),
    "a name that a package passes on": ("low/data.py", "LIMIT = 10", "LIMIT = 11"),
    "an import within a function": ("low/late.py", "+ x", "- x"),
    "what importing does": ("low/effects.py", '"1"', '"2"'),
    "a library's function of the same name": ("top/begin.py", "from math", "from cmath"),
    "the entry that is named": ("low/ways.py", "x + 1", "x + 2"),
    "a dict that settings do not choose from": ("low/ways.py", '"sideways": 2', '"sideways": 3'),
    "the order of such a dict": ("low/ways.py", '"up": 1, "sideways": 2', '"sideways": 2, "up": 1'),
    "what a decorator of the project gets": ("low/effects.py", "return 7", "return 8"),
    "a property of settings": ("low/data.py", 'self.way == "up"', 'self.way != "up"'),
    "a constant of settings": ("low/data.py", '"plain"', '"fancy"'),
}


def written(folder: Path, project: dict[str, str] = PROJECT) -> Sources:
    for name, text in project.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")
    return Sources(texts_of({room: folder / room for room in ("top", "low")}), NAMES)


def fingerprint(folder: Path, project: dict[str, str] = PROJECT) -> str:
    return written(folder, project).fingerprint(ROOTS, ["up"])


def edited(name: str, old: str, new: str) -> dict[str, str]:
    assert PROJECT[name].count(old) == 1
    return PROJECT | {name: PROJECT[name].replace(old, new)}


@pytest.mark.parametrize("case", SAME)
def test_it_is_the_same_after_a_change_of(case: str, tmp_path: Path) -> None:
    assert fingerprint(tmp_path, edited(*SAME[case])) == fingerprint(tmp_path)


@pytest.mark.parametrize("case", OTHER)
def test_it_is_another_after_a_change_of(case: str, tmp_path: Path) -> None:
    assert fingerprint(tmp_path, edited(*OTHER[case])) != fingerprint(tmp_path)


def of_shifted(old: str, new: str, tmp_path: Path) -> str:
    assert old in SHIFTED
    changed = SHIFTED.replace(old, new)
    return fingerprint(tmp_path, PROJECT | {"top/tools.py": PROJECT["top/tools.py"].replace(SHIFTED, changed)})


@pytest.mark.parametrize("case", LOCALS)
def test_it_is_the_same_whatever_locals_are_called(case: str, tmp_path: Path) -> None:
    assert of_shifted(*LOCALS[case], tmp_path) == fingerprint(tmp_path)


@pytest.mark.parametrize("case", EXCHANGED)
def test_it_is_another_after_an_exchange_of(case: str, tmp_path: Path) -> None:
    assert of_shifted(*EXCHANGED[case], tmp_path) != fingerprint(tmp_path)


def test_a_local_leads_to_no_definition_of_its_name(tmp_path: Path) -> None:
    named = edited("top/tools.py", "low * high", "unused(low * high)")
    named["top/tools.py"] = named["top/tools.py"].replace("import LIMIT", "import LIMIT, unused")
    shadowed = PROJECT | {"top/tools.py": named["top/tools.py"].replace("high = x", "unused = high = x")}
    for project, leads in ((named, True), (shadowed, False)):
        reached = {definition.name for definition in written(tmp_path, project).reached(ROOTS, ["up"])}
        assert ("low.unused.Kind" in reached) is leads


def test_entries_that_change_places_count(tmp_path: Path) -> None:
    def named(project: dict[str, str]) -> str:
        return written(tmp_path, project).fingerprint(ROOTS, ["up", "left"])

    first, second = (
        edited("low/ways.py", '{"up": up,', f'{{"up": {up}, "left": {left},') for up, left in (WAYS, WAYS[::-1])
    )
    assert named(first) != named(second)


def test_moving_a_definition_to_another_module_changes_nothing(tmp_path: Path) -> None:
    moved = edited("top/begin.py", "import top.tools as tools", "import top.helpers as tools")
    moved |= {"top/helpers.py": moved.pop("top/tools.py")}
    assert fingerprint(tmp_path, moved) == fingerprint(tmp_path)


def test_moving_what_a_function_imports_changes_nothing(tmp_path: Path) -> None:
    moved = edited("top/begin.py", "from low.late import late", "from low.later import late")
    moved |= {"low/later.py": moved.pop("low/late.py")}
    assert fingerprint(tmp_path, moved) == fingerprint(tmp_path)


def test_splitting_a_module_changes_nothing(tmp_path: Path) -> None:
    whole = dict(PROJECT)
    last = whole["top/tools.py"][whole["top/tools.py"].index("def scaled") :]
    split = whole | {
        "top/tools.py": "import low.effects\nfrom top.scaling import scaled, shifted\n",
        "top/scaling.py": f"from low import LIMIT\n\n\n{last}",
    }
    assert fingerprint(tmp_path, split) == fingerprint(tmp_path)


def test_a_dict_is_no_table_where_settings_cannot_hold_one_of_its_keys(tmp_path: Path) -> None:
    project = edited("low/ways.py", '"down": lambda', '"sideways": up, "down": lambda')
    reached = {definition.name for definition in written(tmp_path, project).reached(ROOTS, ["up"])}
    assert "low.ways.down" in reached


def test_a_string_in_code_that_is_used_names_an_entry_too(tmp_path: Path) -> None:
    project = edited("top/tools.py", "x / 3", 'WAYS["down"](x) / 3')
    project["top/tools.py"] = "from low.ways import WAYS\n" + project["top/tools.py"]
    reached = {definition.name for definition in written(tmp_path, project).reached(ROOTS, ["up"])}
    assert "low.ways.down" in reached


@pytest.mark.parametrize(("old", "new"), [("return -x", "return x"), ('declare("left"', 'declare("left", size=2')])
def test_what_is_declared_under_a_name_counts_for_those_who_name_it(old: str, new: str, tmp_path: Path) -> None:
    first, second = (
        written(tmp_path, project).fingerprint(ROOTS, ["left"])
        for project in (PROJECT, edited("low/ways.py", old, new))
    )
    assert first != second


def test_what_a_decorator_says_names_no_entry(tmp_path: Path) -> None:
    project = edited("low/ways.py", '@declare("left")', '@declare("left", ways=("up", "down"))')
    reached = {definition.name for definition in written(tmp_path, project).reached(ROOTS, ["left"])}
    assert "low.ways.leftwards" in reached
    assert "low.ways.down" not in reached


SPELT = edited("top/tools.py", "x / 3", 'spelt("low.ways.down", "low.unused.Kind")(x) / 3')


def test_a_string_that_spells_a_definition_leads_there(tmp_path: Path) -> None:
    assert "low.ways.down" in {definition.name for definition in written(tmp_path, SPELT).reached(ROOTS, ["up"])}
    other = SPELT | {"low/ways.py": PROJECT["low/ways.py"].replace("x - 1", "x - 2")}
    assert fingerprint(tmp_path, other) != fingerprint(tmp_path, SPELT)
    turned = SPELT | {"top/tools.py": SPELT["top/tools.py"].replace("low.ways.down", "low.unused.Kind", 1)}
    assert fingerprint(tmp_path, turned) != fingerprint(tmp_path, SPELT)


def test_moving_a_definition_that_a_string_spells_changes_nothing(tmp_path: Path) -> None:
    moved = SPELT | {"top/tools.py": SPELT["top/tools.py"].replace("low.unused.Kind", "low.moved.Kind")}
    moved |= {"low/moved.py": moved["low/unused.py"]}
    assert fingerprint(tmp_path, moved) == fingerprint(tmp_path, SPELT)


def test_a_relative_import_leads_where_the_absolute_one_does(tmp_path: Path) -> None:
    relative = edited("top/begin.py", "import top.tools as tools", "from . import tools")
    assert fingerprint(tmp_path, relative) == fingerprint(tmp_path)


@pytest.mark.parametrize(
    ("wrong", "form"), [("from ... import tools", "a relative import"), ("from top.tools import *",) * 2]
)
def test_an_import_that_cannot_be_followed_is_an_error(wrong: str, form: str, tmp_path: Path) -> None:
    with pytest.raises(NotFollowed, match=rf"top\.begin: {re.escape(form)} cannot be followed"):
        fingerprint(tmp_path, edited("top/begin.py", "import top.tools as tools", wrong))


@pytest.mark.parametrize("root", ["top.gone.Begin", "top.begin.Gone"])
def test_where_it_begins_has_to_exist(root: str, tmp_path: Path) -> None:
    with pytest.raises((AssertionError, KeyError)):
        written(tmp_path).fingerprint([root], [])
