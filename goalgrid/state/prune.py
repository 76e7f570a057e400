"""Prune a runs folder: remove trials that belong to no grid, replaced trials, and leftovers of crashed runs.

Trials are moved to the trash, finished trials only on request. Leftovers are deleted if their names are ones that only
this program uses. Only the runs folder itself is searched and no link is followed, so nothing outside it is removed.
"""

import re
import shutil
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rich.filesize import decimal as size

from goalgrid.grid.errors import UserError, counted, regular_bytes
from goalgrid.grid.messages import Note, Step
from goalgrid.grid.store.files import bytes_below, is_aside, readable_text
from goalgrid.grid.store.folder_clock import now_in
from goalgrid.grid.store.home import Home, State, TrialFolder

OLD = 24 * 3600.0
"""Age in seconds after which a partially written file is certainly abandoned."""
CORRUPT = re.compile("(last|previous|best)[.]corrupt")
"""Names of corrupt checkpoints that were set aside."""
RANKED = re.compile("negatives-(.+)-[0-9a-f]{12}")
"""Names of folders with the negative candidates that a trial ranked."""
TAKEN = re.compile("[0-9]{8}T[0-9]{12}")
"""Names of the folders in the trash."""


@dataclass(frozen=True)
class Removable:
    """A file or folder that may be removed.

    Args:
        what: the kind: `trial`, `replaced`, `half-merged`, `candidates`, `corrupt`, `half-written`, `trash`.
        detail: its state and when it finished, for a trial.
    """

    path: Path
    what: str
    bytes: int
    detail: str = ""

    @classmethod
    def at(cls, path: Path, what: str, detail: str = "") -> "Removable":
        return cls(path, what, bytes_below(path) if path.is_dir() else path.lstat().st_size, detail)


@dataclass(frozen=True)
class Rubbish:
    """The items that may be removed, and paths that are kept although they belong to no grid, with the reason."""

    items: list[Removable]
    skipped: dict[Path, str]
    finished: int = 0
    """Number of finished trials that belong to no grid but are kept, as `--done` was not given."""

    @property
    def bytes(self) -> int:
        return sum(item.bytes for item in self.items)

    def to_dict(self) -> dict[str, Any]:
        return {"items": self.items, "bytes": self.bytes, "left": self.skipped, "finished": self.finished}

    def lines(self, home: Home) -> list[Note]:
        """Return one line per item, the total, and the paths that are kept."""
        shown = [str(item.path.relative_to(home.path)) for item in self.items]
        width = max(map(len, shown), default=0)
        rows = [
            f"{item.what:12}  {path:{width}}  {size(item.bytes):>9}  {item.detail}".rstrip()
            for path, item in zip(shown, self.items, strict=True)
        ]
        total = [f"{counted(len(self.items), 'item')}, {size(self.bytes)}"] if self.items else ["nothing to remove"]
        skips = [f"left: {path.relative_to(home.path)}: {why}" for path, why in self.skipped.items()]
        lines = [Note(line) for line in (*rows, *total, *skips)]
        if self.finished:
            count, ask = counted(self.finished, "finished trial"), Step.of("prune", done=True, runs=home.path)
            lines.append(Note(f"left: {count} of no grid; to remove finished trials, too: {{step}}", ask))
        return lines


def rubbish(home: Home, *, done: bool = False) -> Rubbish:
    """Find what may be removed, including finished trials if `done`.

    Raises UserError if no grid has run here, or a grid's list of trials is missing or damaged.
    """
    named = _named(home)
    items, skipped, finished = list[Removable](), dict[Path, str](), 0
    replaced = [TrialFolder(path) for path in _folders(home.replaced)]
    for folder in [*home.trials(), *replaced]:
        state = folder.state()
        if folder.path.parent == home.trials_folder and folder.trial_id in named:
            items += () if state in (State.RUNNING, State.UNREADABLE) else _broken(folder.path)
        elif folder.path.is_symlink():
            skipped[folder.path] = "it is a link; remove it by hand"
        elif state is State.UNREADABLE:
            skipped[folder.path] = f"it cannot be read: {folder.unreadable()}"
        elif state is State.RUNNING:
            skipped[folder.path] = "it is being trained"
        elif state is State.PLANNED and folder not in replaced and any(folder.path.iterdir()):
            skipped[folder.path] = "it does not contain a trial; remove it by hand"
        elif state is State.DONE and not done:
            finished += 1
        else:
            detail = f"{state.value} {readable_text(folder.done).strip() if state is State.DONE else ''}".strip()
            items.append(Removable.at(folder.path, "replaced" if folder in replaced else "trial", detail))
    merges = filter(is_aside, _folders(home.trials_folder, ".*"))
    items += [Removable.at(path, "half-merged") for path in merges if _old(path)]
    ranked = ((path, RANKED.fullmatch(path.name)) for path in _folders(home.features))
    items += [
        Removable.at(path, "candidates", f"by {match[1]}") for path, match in ranked if match and match[1] not in named
    ]
    below = (home.path / "grids", home.features, home.data, home.launches)
    items += [half for place in below for half in _halves(place, "**/.*")]
    items += _halves(home.path, ".*")
    return Rubbish(items, skipped, finished)


def trash(home: Home) -> Rubbish:
    """Return the contents of the trash."""
    return Rubbish([Removable.at(path, "trash") for when in _taken(home) for path in _folders(when)], {})


def remove(removable: Rubbish, home: Home) -> Rubbish:
    """Remove the items, except trials that are being trained by now; return what was removed and what was kept, why."""
    from goalgrid.runners.trial.archive import take_away

    removed, skipped = list[Removable](), dict(removable.skipped)
    aside = home.trash / f"{datetime.now(UTC):%Y%m%dT%H%M%S%f}"
    for item in removable.items:
        try:
            if item.what in ("trial", "replaced") and not take_away(TrialFolder(item.path), aside / item.path.name):
                skipped[item.path] = "it is now being trained"
                continue
            if item.path.is_dir():
                shutil.rmtree(item.path)
            else:
                item.path.unlink(missing_ok=True)
            removed.append(item)
        except OSError as error:
            raise UserError(f"cannot remove {item.path}: {error.strerror}.") from error
    for folder in (*_taken(home), home.trash):
        with suppress(OSError):  # it is not empty
            folder.rmdir()
    return Rubbish(removed, skipped)


def _named(home: Home) -> set[str]:
    names = home.grids()
    if not names:
        raise UserError(
            f"no grid has run under {home.path}, so no trial belongs to a grid and all would be removed. "
            "Give the runs folder with --runs or GOALGRID_RUNS, or remove that folder by hand."
        )
    named = set[str]()
    for name in names:
        grid = home.grid(name)
        named.update(_ids(grid.trials, Step.of("resume", name, runs=home.path, load=True)))
        if grid.imported.exists():
            named.update(_ids(grid.imported, Step.of("evaluate", "FILE", into=name, runs=home.path)))
    return named


def _ids(path: Path, again: Step) -> list[str]:
    """Return the trial ids in a grid's list; raise UserError if it is missing or damaged. `again` rewrites it."""
    with suppress(OSError, UnicodeDecodeError):
        text = regular_bytes(path).decode()
        if text.endswith("\n") and all(line and line.isprintable() for line in text.splitlines()):
            return text.splitlines()
    raise UserError(
        f"the trials of grid {path.parent.name!r} are unknown: {path} is missing or damaged. To rewrite it: "
        f"{{step}}. Or remove {path.parent} if the grid is no longer needed.",
        again,
    )


def _folders(place: Path, pattern: str = "*") -> list[Path]:
    if place.is_symlink():
        return []
    return sorted(path for path in place.glob(pattern) if path.is_dir() and not path.is_symlink())


def _taken(home: Home) -> list[Path]:
    return [path for path in _folders(home.trash) if TAKEN.fullmatch(path.name)]


def _broken(trial: Path) -> list[Removable]:
    """Return a trial's corrupt checkpoints that were set aside, and its abandoned, partially written files."""
    corrupt = [] if trial.is_symlink() else [path for path in sorted(trial.glob("*.corrupt")) if _plain(path)]
    set_aside = [Removable.at(path, "corrupt") for path in corrupt if CORRUPT.fullmatch(path.name)]
    return [*set_aside, *_halves(trial, "**/.*")]


def _halves(place: Path, pattern: str) -> list[Removable]:
    """Return abandoned temporary files in a folder: written long ago and never renamed."""
    entries = [] if place.is_symlink() else sorted(filter(is_aside, place.glob(pattern)))
    return [Removable.at(path, "half-written") for path in entries if _plain(path) and _old(path)]


def _old(path: Path) -> bool:
    """Return whether a path is so old that no process can still be writing it."""
    return now_in(path.parent) - path.stat().st_mtime > OLD


def _plain(path: Path) -> bool:
    return path.is_file() and not path.is_symlink()
