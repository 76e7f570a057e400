"""Finds the other packages of this program, whatever modules of the same names a user has.

`python` and notebooks search the working folder first: there a user's own `grid.py` would stand in for our `grid`.
"""

import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import ModuleType

ROOMS = ("grid", "objectives", "results", "retrieval", "runners")
"""The packages that lie beside this package."""
BESIDE = [str(Path(__file__).parent.parent)]


class _Beside:
    """Looks beside this package for its rooms, before any folder of `sys.path` is searched."""

    @staticmethod
    def find_spec(name: str, path: Sequence[str] | None = None, target: ModuleType | None = None) -> ModuleSpec | None:
        return PathFinder.find_spec(name, BESIDE) if name in ROOMS else None


def find_ours() -> list[str]:
    """Have all later imports of a room find ours; the user's files that they no longer find.

    Raises:
        ImportError: a user's module that has the name of a room is imported already.
    """
    ours = {room: _file(_Beside.find_spec(room)) for room in ROOMS}
    for room in ROOMS:
        loaded = sys.modules.get(room)
        if loaded is not None and _file(loaded.__spec__) != ours[room]:
            raise ImportError(
                f"{_file(loaded.__spec__) or loaded} is imported already, and has the name of a package of goalgrid. "
                "Rename it, and start Python anew."
            )
    if _Beside not in sys.meta_path:
        sys.meta_path.insert(0, _Beside)
    first = {room: _file(PathFinder.find_spec(room)) for room in ROOMS}
    return [file for room, file in first.items() if file not in ("", ours[room])]


def _file(spec: ModuleSpec | None) -> str:
    """The file of a module; empty for a folder without `__init__.py`, which hides nothing."""
    return str(Path(spec.origin).resolve()) if spec and spec.origin else ""
