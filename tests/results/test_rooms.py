"""The rooms inside results/, as its first page lists them."""

import ast
import re
from pathlib import Path

import pytest

from goalgrid import results

FOLDER = Path(results.__file__).parent
ROOMS = re.findall(r"\w+", (results.__doc__ or "").split("\n\n")[1].partition(":")[0])


def test_every_folder_is_listed() -> None:
    assert sorted(ROOMS) == sorted(path.parent.name for path in FOLDER.glob("*/__init__.py"))


@pytest.mark.parametrize("room", ROOMS)
def test_a_room_imports_only_rooms_listed_above_it(room: str) -> None:
    imports = {
        name
        for path in (FOLDER / room).rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.ImportFrom) and f"{node.module}.".startswith("goalgrid.results.")
        for name in (f"{node.module}.{alias.name}".split(".")[2] for alias in node.names)
    }
    assert imports <= {room, *ROOMS[: ROOMS.index(room)]}
