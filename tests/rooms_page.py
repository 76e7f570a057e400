"""The page of the folders and its picture, from first lines and imports: `python -m tests.rooms_page` writes both."""

import ast
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import grimp

from tests.program import FILES, ROOMS, ROOT

DOCS = ROOT / "docs"
PICTURE = DOCS / "pictures" / "rooms.svg"
PAGE = """# The rooms of the code

After reading this page you know in which folder to look for what the program does. The tests wrote it from the first
line of each folder's `__init__.py`, and the picture from the imports: `python -m tests.rooms_page`.

In the code, each folder at the top is a package inside `goalgrid`: `goalgrid.grid`, `goalgrid.runners`. The build takes
the folders by name (`pyproject.toml`). Links in `goalgrid/` lead to them, for editors, type checkers and tests;
`make links` makes those that a zip or git left out. Imports point down only:
goalgrid -> runners -> {results, retrieval, objectives} -> grid.

![The six rooms, and arrows with the number of imports](pictures/rooms.svg)
A number counts the imports of modules behind an arrow, as of the last drawing. Dashed: systems in
`retrieval/components/`, whose losses are next to their networks.

| folder | what is in it |
|---|---|"""

PLACES = {
    "goalgrid": (300, 20), "runners": (460, 120), "results": (60, 260), "retrieval": (280, 260),
    "objectives": (540, 260), "grid": (300, 390),
}  # fmt: skip
"""The upper left corner of each room."""
WIDTH, HEIGHT = 120, 40
LINES = {
    ("goalgrid", "runners"): ("M400,60 L488,118", (445, 90)),
    ("goalgrid", "results"): ("M320,60 L132,258", (226, 160)),
    ("goalgrid", "retrieval"): ("M345,60 L335,258", (340, 140)),
    ("goalgrid", "objectives"): ("M420,40 H640 V258", (640, 160)),
    ("goalgrid", "grid"): ("M300,40 H30 V410 H298", (30, 160)),
    ("runners", "results"): ("M470,160 L162,258", (235, 235)),
    ("runners", "retrieval"): ("M500,160 L377,258", (438, 209)),
    ("runners", "objectives"): ("M550,160 L589,258", (570, 210)),
    ("runners", "grid"): ("M525,160 L411,388", (439, 332)),
    ("results", "grid"): ("M120,300 L308,388", (214, 344)),
    ("retrieval", "grid"): ("M340,300 L350,388", (345, 344)),
    ("objectives", "grid"): ("M600,300 L422,396", (511, 348)),
    ("retrieval", "objectives"): ("M400,280 H538", (512, 280)),
}
"""The line of each arrow, and where its number is."""
FRAME = """<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 700 450" font-family="sans-serif" font-size="14">
<defs><marker id="head" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="7" markerHeight="7" orient="auto">
<path d="M0,0 L8,4 L0,8 z" fill="#557"/></marker></defs>
<rect width="700" height="450" fill="#fff"/>"""
ROOM = """<rect x="{x}" y="{y}" width="{w}" height="{h}" rx="6" fill="#eef" stroke="#557"/>
<text x="{mid}" y="{base}" text-anchor="middle" font-weight="bold">{name}</text>"""
ARROW = """<path d="{line}" fill="none" stroke="#557" stroke-width="1.3"{dashes} marker-end="url(#head)"/>"""
NUMBER = """<rect x="{left}" y="{top}" width="36" height="18" fill="#fff"/>
<text x="{x}" y="{base}" text-anchor="middle" fill="#335">{count}</text>"""


def imports() -> Counter[tuple[str, str]]:
    """How many modules of another room the modules of a room import, each pair counted once."""
    graph = grimp.build_graph("goalgrid", cache_dir=None)
    pairs = ((module, other) for module in graph.modules for other in graph.find_modules_directly_imported_by(module))
    counts = Counter((_room(module), _room(other)) for module, other in sorted(pairs))
    return Counter({(room, other): number for (room, other), number in counts.items() if room != other})


def _room(module: str) -> str:
    return next((part for part in module.split(".")[1:2] if part in ROOMS), "goalgrid")


def picture() -> Iterator[str]:
    """The picture of the rooms; KeyError: an arrow that has no line."""
    counts = imports()
    yield FRAME
    for arrow in counts:
        dashes = ' stroke-dasharray="5 4"' if arrow == ("retrieval", "objectives") else ""
        yield ARROW.format(line=LINES[arrow][0], dashes=dashes)
    for arrow, number in counts.items():
        x, y = LINES[arrow][1]
        yield NUMBER.format(x=x, left=x - 18, top=y - 9, base=y + 5, count=number)
    for name, (x, y) in PLACES.items():
        yield ROOM.format(x=x, y=y, w=WIDTH, h=HEIGHT, mid=x + WIDTH // 2, base=y + 25, name=f"{name}/")
    yield "</svg>"


def lines() -> Iterator[str]:
    """The page docs/rooms.md."""
    yield from PAGE.splitlines()
    for room in reversed(ROOMS):
        for path in (path for path in FILES if path.name == "__init__.py" and path.is_relative_to(ROOT / room)):
            first = str(ast.get_docstring(ast.parse(path.read_text(encoding="utf-8")))).splitlines()[0]
            yield f"| `{path.parent.relative_to(ROOT)}/` | {first} |"


def _write(path: Path, text: Iterator[str]) -> None:
    path.write_text("\n".join(text) + "\n", encoding="utf-8")


if __name__ == "__main__":
    _write(DOCS / "rooms.md", lines())
    _write(PICTURE, picture())
