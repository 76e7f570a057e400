"""The sources of the program, for tests that read, copy or change them."""

import shutil
from pathlib import Path

ROOT = Path(__file__).parent.parent
ROOMS = ("grid", "objectives", "retrieval", "results", "runners", "goalgrid")
"""The folders of the checkout that hold the program; links in goalgrid/ make the others packages of it."""
FILES = [path for room in ROOMS for path in sorted((ROOT / room).rglob("*.py"))]


def module_of(path: Path, root: Path = ROOT) -> str:
    """The dotted name of a source file: `goalgrid.grid.store` of grid/store/__init__.py."""
    parts = path.relative_to(root).with_suffix("").parts
    return ".".join(parts if parts[0] == "goalgrid" else ("goalgrid", *parts)).removesuffix(".__init__")


def copied(folder: Path) -> Path:
    """A copy of the program in this folder, laid out as a checkout."""
    for room in ROOMS:
        shutil.copytree(ROOT / room, folder / room, symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))
    return folder
