"""What may be removed from a runs folder: trials that no grid names, what was replaced, and what broken runs left.

Only what stands in the folder is looked at, and never through a link: no name that is read from a file leads out of it.
"""

import shutil
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from goalgrid.planning.overview import many
from grid.errors import UserError
from grid.store.home import Home, State, TrialFolder

OLD = 24 * 3600.0
"""Seconds after which what is half written belongs to nobody any more."""

HALF = ".*.*"
"""How a file is named that is written aside."""

REMOVED = ".removed-"
"""What ends the name of a trial's folder while it is removed; where that was cut off, it still stands."""


@dataclass(frozen=True)
class Item:
    """Something that may be removed.

    Args:
        what: the kind: `trial`, `replaced`, `half-removed`, `corrupt`, `half-written`, `stop request`.
        detail: its state and when it finished, for a trial.
    """

    path: Path
    what: str
    bytes: int
    detail: str = ""

    def to_dict(self) -> dict[str, Any]:
        return {"path": str(self.path), "what": self.what, "bytes": self.bytes, "detail": self.detail}


@dataclass(frozen=True)
class Rubbish:
    """What may be removed, and what is left although no grid names it, with why."""

    items: list[Item]
    left: dict[Path, str]

    @property
    def bytes(self) -> int:
        return sum(item.bytes for item in self.items)

    def to_dict(self) -> dict[str, Any]:
        """For `--json`."""
        return {
            "items": [item.to_dict() for item in self.items],
            "bytes": self.bytes,
            "left": {str(path): why for path, why in self.left.items()},
        }

    def lines(self, home: Home) -> list[str]:
        """An item a line, the total, and what is left."""
        shown = [str(item.path.relative_to(home.path)) for item in self.items]
        width = max(map(len, shown), default=0)
        told = [
            f"{item.what:12}  {path:{width}}  {size(item.bytes):>9}  {item.detail}".rstrip()
            for path, item in zip(shown, self.items, strict=True)
        ]
        total = [f"{many(len(self.items), 'thing')}, {size(self.bytes)}"] if self.items else ["nothing to remove"]
        return [*told, *total, *(f"left: {path.relative_to(home.path)}: {why}" for path, why in self.left.items())]


def rubbish(home: Home) -> Rubbish:
    """Look for all that may be removed.

    Raises:
        UserError: no grid says which trials are wanted, or one does not say which are its own.
    """
    named = _named(home)
    items: list[Item] = []
    left: dict[Path, str] = {}
    for folder in home.trials():
        live = folder.state() is State.RUNNING
        if folder.trial_id in named:
            items += () if live else _broken(folder.path)
        elif folder.path.is_symlink():
            left[folder.path] = "it is a link; remove it by hand"
        elif live:
            left[folder.path] = "it is being trained"
        else:
            items.append(Item(folder.path, "trial", _bytes(folder.path), _detail(folder)))
    items += [Item(path, "replaced", _bytes(path), _detail(TrialFolder(path))) for path in _folders(home.replaced)]
    halves = _folders(home.path / "trials", f".*{REMOVED}*")
    items += [Item(path, "half-removed", _bytes(path)) for path in halves]
    for place in (home.path / "grids", home.features, home.launches):
        items += _broken(place)
    items += [Item(path, "half-written", path.stat().st_size) for path in _old(home.path.glob(HALF))]
    busy = {launch for folder in home.trials() if (launch := _launch(folder))}
    for path in sorted(home.launches.glob("*.stop")):
        if path.stem in busy:
            left[path] = "its launch still ends"
        else:
            items.append(Item(path, "stop request", path.stat().st_size))
    return Rubbish(items, left)


def remove(found: Rubbish) -> Rubbish:
    """Remove what was found, except what is being trained by now; what was removed, and what was left.

    Raises:
        UserError: something cannot be removed.
    """
    removed: list[Item] = []
    left = dict(found.left)
    for item in found.items:
        try:
            gone = _remove(item)
        except OSError as error:
            raise UserError(f"cannot remove {item.path}: {error.strerror}.") from error
        if gone:
            removed.append(item)
        else:
            left[item.path] = "it is being trained by now"
    return Rubbish(removed, left)


def _remove(item: Item) -> bool:
    from runners.trial.move_aside import take_away

    if item.what == "trial":
        aside = item.path.with_name(f".{item.path.name}{REMOVED}{time.time_ns()}")
        if not take_away(TrialFolder(item.path), aside):
            return False
        shutil.rmtree(aside)
    elif item.path.is_dir():
        shutil.rmtree(item.path)
    else:
        item.path.unlink(missing_ok=True)
    return True


def _named(home: Home) -> set[str]:
    """Ids of all trials that a grid of this home has.

    Raises:
        UserError: as of `rubbish`.
    """
    grids = home.grids()
    if not grids:
        raise UserError(
            f"no grid was run under {home.path}, so nothing says which trials are wanted, and all would go. "
            "Name the runs folder by --runs or GOALGRID_RUNS, or remove that folder by hand."
        )
    for grid in grids:
        if not grid.trials.exists():
            name = grid.path.name
            raise UserError(
                f"grid {name!r} does not say which trials are its own: {grid.trials} is missing. "
                f"Write it anew by goalgrid resume {name}, or remove {grid.path} if that grid is not wanted."
            )
    return {trial_id for grid in grids for trial_id in grid.ids()}


def _folders(place: Path, pattern: str = "*") -> list[Path]:
    return sorted(path for path in place.glob(pattern) if path.is_dir() and not path.is_symlink())


def _broken(place: Path) -> list[Item]:
    """Checkpoints that were set aside, and what was half written long ago."""
    if place.is_symlink():
        return []
    items = [Item(path, "corrupt", path.stat().st_size) for path in sorted(place.rglob("*.corrupt")) if _plain(path)]
    return items + [Item(path, "half-written", path.stat().st_size) for path in _old(place.rglob(HALF))]


def _old(paths: Iterable[Path]) -> Iterator[Path]:
    for path in sorted(paths):
        if _plain(path) and time.time() - path.stat().st_mtime > OLD:
            yield path


def _plain(path: Path) -> bool:
    return path.is_file() and not path.is_symlink()


def _launch(folder: TrialFolder) -> str | None:
    """The launch that trains it now."""
    latest = folder.latest()
    return str(latest.content().get("launch")) if latest and latest.live() else None


def _detail(folder: TrialFolder) -> str:
    state = folder.state()
    finished = folder.done.read_text(encoding="utf-8").strip() if state is State.DONE else ""
    return f"{state.value} {finished}".strip()


def _bytes(place: Path) -> int:
    return sum(path.stat().st_size for path in place.rglob("*") if _plain(path))


def size(count: int) -> str:
    """`1.2 MB`."""
    unit, factor = next((pair for pair in (("GB", 1e9), ("MB", 1e6)) if count >= pair[1]), ("kB", 1e3))
    return f"{count / factor:,.1f} {unit}"
