"""The page of the folders, from their first lines: `python -m tests.rooms_page > docs/rooms.md`."""

import ast
import sys
from collections.abc import Iterator

from tests.program import FILES, ROOMS, ROOT

PAGE = """# The rooms of the code

After reading this page you know in which folder to look for what the program does. The tests wrote it from the first
line of each folder's `__init__.py`: `python -m tests.rooms_page > docs/rooms.md`.

In the code, each folder at the top is a package inside `goalgrid`: `goalgrid.grid`, `goalgrid.runners`. Links in
`goalgrid/` lead to the folders. Imports point down only:
goalgrid -> runners -> {results, retrieval, objectives} -> grid.

| folder | what is in it |
|---|---|"""


def lines() -> Iterator[str]:
    """The page docs/rooms.md."""
    yield from PAGE.splitlines()
    for room in reversed(ROOMS):
        for path in (path for path in FILES if path.name == "__init__.py" and path.is_relative_to(ROOT / room)):
            first = str(ast.get_docstring(ast.parse(path.read_text(encoding="utf-8")))).splitlines()[0]
            yield f"| `{path.parent.relative_to(ROOT)}/` | {first} |"


if __name__ == "__main__":
    sys.stdout.writelines(f"{line}\n" for line in lines())
