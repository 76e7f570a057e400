"""What may be removed from a runs folder: trials that no grid names, replaced trials, and leftovers of broken runs.

Trials go to the trash, finished trials only where the user asks for it; leftovers are deleted, by names that only this
program gives. Only the folder itself is searched, and no link is followed: no name that is read from a file leads out
of it.
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
"""Seconds after which no process still writes a half-written file."""
CORRUPT = re.compile("(last|previous|best)[.]corrupt")
"""Names of checkpoints that were set aside."""
RANKED = re.compile("negatives-(.+)-[0-9a-f]{12}")
"""Names of folders with the candidates that a trial ranked."""
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
    """The items that may be removed; and the paths that stay although no grid names them, with the reason."""

    items: list[Removable]
    skipped: dict[Path, str]
    finished: int = 0
    """Finished trials that no grid names, and that stay because the user did not ask to take them."""

    @property
    def bytes(self) -> int:
        return sum(item.bytes for item in self.items)

    def to_dict(self) -> dict[str, Any]:
        return {"items": self.items, "bytes": self.bytes, "left": self.skipped, "finished": self.finished}

    def lines(self, home: Home) -> list[Note]:
        """Return a line for each item, the total, and the paths that stay."""
        shown = [str(item.path.relative_to(home.path)) for item in self.items]
        width = max(map(len, shown), default=0)
        rows = [
            f"{item.what:12}  {path:{width}}  {size(item.bytes):>9}  {item.detail}".rstrip()
            for path, item in zip(shown, self.items, strict=True)
        ]
        total = [f"{counted(len(self.items), 'thing')}, {size(self.bytes)}"] if self.items else ["nothing to remove"]
        skips = [f"left: {path.relative_to(home.path)}: {why}" for path, why in self.skipped.items()]
        lines = [Note(line) for line in (*rows, *total, *skips)]
        if self.finished:
            count, ask = counted(self.finished, "finished trial"), Step.of("prune", done=True, runs=home.path)
            lines.append(Note(f"left: {count} that no grid names; {{step}} takes finished trials, too", ask))
        return lines


def rubbish(home: Home, *, done: bool = False) -> Rubbish:
    """Find what may be removed, finished trials only if `done`; UserError: no grid, or one without a list of trials."""
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
            skipped[folder.path] = "it holds no trial; remove it by hand"
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
    """Return what is in the trash."""
    return Rubbish([Removable.at(path, "trash") for when in _taken(home) for path in _folders(when)], {})


def remove(removable: Rubbish, home: Home) -> Rubbish:
    """Remove the items, but no trial that is trained by now; the items removed, and the paths left with the reason."""
    from goalgrid.runners.trial.archive import take_away

    removed, skipped = list[Removable](), dict(removable.skipped)
    aside = home.trash / f"{datetime.now(UTC):%Y%m%dT%H%M%S%f}"
    for item in removable.items:
        try:
            if item.what in ("trial", "replaced") and not take_away(TrialFolder(item.path), aside / item.path.name):
                skipped[item.path] = "it is being trained by now"
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
            f"no grid was run under {home.path}, so nothing says which trials are wanted, and all would go. "
            "Name the runs folder by --runs or GOALGRID_RUNS, or remove that folder by hand."
        )
    named = set[str]()
    for name in names:
        grid = home.grid(name)
        named.update(_ids(grid.trials, Step.of("resume", name, runs=home.path, load=True)))
        if grid.imported.exists():
            named.update(_ids(grid.imported, Step.of("evaluate", "FILE", into=name, runs=home.path)))
    return named


def _ids(path: Path, again: Step) -> list[str]:
    """Return the ids in a grid's list, read once since a second reading may differ; UserError: `again` writes it."""
    with suppress(OSError, UnicodeDecodeError):
        text = regular_bytes(path).decode()
        if text.endswith("\n") and all(line and line.isprintable() for line in text.splitlines()):
            return text.splitlines()
    raise UserError(
        f"grid {path.parent.name!r} does not say which trials are its own: {path} is missing or damaged. Write it "
        f"again: {{step}}. Or remove {path.parent} if that grid is not wanted.",
        again,
    )


def _folders(place: Path, pattern: str = "*") -> list[Path]:
    if place.is_symlink():
        return []
    return sorted(path for path in place.glob(pattern) if path.is_dir() and not path.is_symlink())


def _taken(home: Home) -> list[Path]:
    return [path for path in _folders(home.trash) if TAKEN.fullmatch(path.name)]


def _broken(trial: Path) -> list[Removable]:
    """Checkpoints of a trial that were set aside, and files that were half written long ago."""
    corrupt = [] if trial.is_symlink() else [path for path in sorted(trial.glob("*.corrupt")) if _plain(path)]
    set_aside = [Removable.at(path, "corrupt") for path in corrupt if CORRUPT.fullmatch(path.name)]
    return [*set_aside, *_halves(trial, "**/.*")]


def _halves(place: Path, pattern: str) -> list[Removable]:
    """Files in a folder that were written aside long ago, and did not get their names."""
    entries = [] if place.is_symlink() else sorted(filter(is_aside, place.glob(pattern)))
    return [Removable.at(path, "half-written") for path in entries if _plain(path) and _old(path)]


def _old(path: Path) -> bool:
    """Return whether no process still writes it."""
    return now_in(path.parent) - path.stat().st_mtime > OLD


def _plain(path: Path) -> bool:
    return path.is_file() and not path.is_symlink()
