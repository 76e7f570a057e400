"""What every annotation format gives: one entry an image; and the image files of the entries.

Names in annotations are untrusted: one that leads out of the root, one with `..`, and a link out of the user's folders
are refused.
A folder of the root may itself be a link, and links may lead into it, since the user has placed it.
"""

import os
import shlex
import stat
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

from goalgrid.grid.errors import counted
from goalgrid.grid.groups import grouped
from goalgrid.retrieval.data.file_slice import FileSlice
from goalgrid.retrieval.splits.problems import Problem

SPLITS = ("train", "val", "test")
FOLDERS = ["images", "flickr30k-images", "flickr30k_images", "Flicker8k_Dataset", "Flickr8k_Dataset"]
FOLDERS += ["train2014", "val2014"]
"""Image folders as the archives of these data sets name them, below the root or below `images/`."""
ENDINGS = (".jpg", ".JPG", ".jpeg", ".JPEG", ".png", ".PNG")
"""Endings under which an image may lie that the annotations name by another."""
OTHER_ENDING = "Write that ending in the annotations."
SLASHES = "Write / between folders instead of \\, which only Windows understands: {name}."
SAMPLE = 20
"""Entries, spread over all, by which the image folder is recognised."""


@dataclass(frozen=True)
class Annotation:
    """One image with its captions, as the annotations name it.

    Args:
        split: train, val or test.
        names: of its file, below some image folder; the first that exists counts.
        place: where the entry is, for messages.
        ids: COCO's ids of the captions; empty: not known.
        values: of further columns that an objective reads, for each caption.
        image: where it lies, if the annotations say more than its name; None: a file of its own.
    """

    split: str
    names: tuple[str, ...]
    captions: tuple[str, ...]
    place: str
    ids: tuple[int, ...] = ()
    image: FileSlice | None = None
    values: tuple[tuple[float, ...], ...] = ()


def first(root: Path, folders: Sequence[str], *patterns: str) -> Path | None:
    """Return the first file below the root: in the first folder, of the first pattern, first by name."""
    paths = (path for folder in folders for pattern in patterns for path in sorted((root / folder).glob(pattern)))
    return next((path for path in paths if path.exists()), None)


def entries_of(
    split: str, pairs: Iterable[tuple[str, str]], place: Path, folder: str = "", ids: Sequence[int] = ()
) -> list[Annotation]:
    """Build an entry for each image of these (image, caption) pairs of a file; an image may be in `folder`, too.

    `ids`: COCO's, of each pair; none: not known.
    """
    pairs = list(pairs)
    of_image = grouped((image, key) for (image, _), key in zip(pairs, ids, strict=False))
    entries = []
    for image, texts in grouped(pairs).items():
        names = (f"{folder}/{image}", image) if folder else (image,)
        keys = tuple(of_image.get(image, ()))
        entries.append(Annotation(split, names, tuple(texts), f"{place}: image {image}", keys))
    return entries


def below(name: str, folder: Path) -> str:
    """Return the path of a file below this folder, if its name is an absolute path there; else the name."""
    folders = (folder.absolute(), folder.resolve()) if name.startswith("/") else ()
    return next((str(Path(name).relative_to(home)) for home in folders if Path(name).is_relative_to(home)), name)


class Outside(Exception):
    """A name that leads out of the user's folders; with the target, if by a link."""


class Locator:
    """Finds the file of an entry below a folder; `homes` are all folders that its links may lead to, the root first."""

    def __init__(self, folder: Path, homes: Sequence[Path]) -> None:
        self.folder, self.root = folder, homes[0]
        # Asked once a folder: files of a split are many, their folders few.
        self.inside = cache(lambda path: any(map(path.resolve().is_relative_to, homes)))
        self._truly_missing = 0

    def file(self, name: str) -> Path | None:
        """Return the file of this name; None: it does not exist. `Outside`: the name, or a link on its way, leads out.

        `Outside`: the name, or a link on its way, leads out.
        """
        relative = Path(below(name, self.folder))
        if relative.is_absolute() or ".." in relative.parts:
            raise Outside(name)
        path = self.folder / relative
        try:
            mode = path.lstat().st_mode
            linked = stat.S_ISLNK(mode)
            inside = self.inside(path if linked else path.parent)
            is_file = path.is_file() if linked else stat.S_ISREG(mode)
        except (OSError, RuntimeError, ValueError):  # no such file, a link to itself, a name that no file can have
            return None
        if not inside:
            raise Outside(name, path.resolve())
        return path if is_file else None

    def of(self, entry: Annotation, problems: list[Problem]) -> Path | None:
        """Return the file of an entry, or None after reporting why there is none."""
        try:
            file = next((file for name in entry.names if (file := self.file(name))), None)
        except Outside as out:
            name, *target = out.args
            what, fix = f"file name {name!r}", "Name images by their path below that folder, or copy them in."
            if target:
                what = f"the link {name!r}"
                link = shlex.join(["ln", "-s", str(target[0].parent), str(self.root / "linked")])
                fix = f"To allow links there, make a link to that folder ({link}); or copy the images in."
            problems.append(Problem(entry.place, f"{what} leads out of {self.folder}", fix))
            return None
        if file is None:
            path = str(self.folder / entry.names[0]).encode("utf-8", "backslashreplace").decode()
            problems.append(self.missing(path, "the image is missing", entry.names))
        return file

    def missing(self, place: str, what: str, names: Sequence[str]) -> Problem:
        """Report an image that is missing, which may be here with another ending."""
        if "\\" in names[0]:
            return Problem(place, what, SLASHES.format(name=names[0].replace("\\", "/")))
        bases, other = [base for name in names for base in (name.removesuffix(Path(name).suffix), name)], None
        if self._truly_missing < SAMPLE:  # of thousands of images on a shared disk, each look takes time
            other = self.find(base + ending for base in bases for ending in ENDINGS)
            self._truly_missing += other is None
        if other:
            return Problem(place, f"{what}; {other.parent} holds {other.name}", OTHER_ENDING)
        return Problem(place, what, "Unpack its archive again, fetch this file, or delete its captions.")

    def find(self, names: Iterable[str]) -> Path | None:
        """Return the first file of these names; None: none exists, or a name before it leads out."""
        with suppress(Outside):
            return next((file for name in names if (file := self.file(name))), None)
        return None

    def hits(self, entries: Sequence[Annotation]) -> int:
        """Count the entries whose file is here, or is a link that leads out."""
        return sum(map(self._holds, entries))

    def _holds(self, entry: Annotation) -> bool:
        try:
            return any(map(self.file, entry.names))
        except Outside as out:
            return len(out.args) > 1


def located(entries: Sequence[Annotation], root: Path, problems: list[Problem]) -> list[tuple[Annotation, FileSlice]]:
    """Pair every entry with its file; entries without one are left out and reported."""
    if all(entry.image for entry in entries):
        return [(entry, entry.image) for entry in entries if entry.image]
    locator = _best([entry for entry in entries if not entry.image], root)
    faults: list[Problem] = []
    sought = ((entry, entry.image or locator.of(entry, faults)) for entry in entries)
    pairs = [(entry, at if isinstance(at, FileSlice) else FileSlice(at)) for entry, at in sought if at]
    leading_out = [fault for fault in faults if "leads out of" in fault.what]
    if entries and not pairs and not leading_out:
        faults = [_all_missing(entries[0].names, root)]
    elif len(leading_out) > 1:
        rest = f"{leading_out[0].what}; so do {counted(len(leading_out) - 1, 'other')}"
        faults = [replace(leading_out[0], what=rest), *(fault for fault in faults if fault not in leading_out)]
    problems.extend(faults)
    return pairs


def _all_missing(names: Sequence[str], root: Path) -> Problem:
    """No image is where the annotations say, this one first."""
    name = names[0]
    what = f"no folder below it holds {name!r}, or any other image that the annotations name"
    bare = Path(name).name
    if "\\" in name:
        return Problem(str(root), what, SLASHES.format(name=name.replace("\\", "/")))
    for locator in _locators(root):
        if (problem := locator.missing(str(root), what, names)).fix == OTHER_ENDING:
            return problem
        if bare != name and locator.find([bare]):
            return Problem(str(root), what, f"{bare!r} lies in {locator.folder}: name images by that.")
    return Problem(str(root), what, f"Put the images into {root / FOLDERS[0]}.")


def _best(entries: Sequence[Annotation], root: Path) -> Locator:
    """The folder that holds the most of a sample of entries; of all entries, where it holds none of the sample."""
    locators = _locators(root)
    sample = entries[:: max(1, len(entries) // SAMPLE)]
    best = max(locators, key=lambda locator: locator.hits(sample))
    return best if best.hits(sample) else max(locators, key=lambda locator: locator.hits(entries))


def _locators(root: Path) -> list[Locator]:
    folders = list(_folders(root))
    homes = list(dict.fromkeys([*(folder.resolve() for folder in folders), *_blobs(root)]))
    return [Locator(folder, homes) for folder in folders]


def _blobs(root: Path) -> list[Path]:
    """The folder that the links of a revision in a hub's cache lead to: `DATA/snapshots/REVISION`, `DATA/blobs`."""
    blobs = [snapshots.parent / "blobs" for snapshots in root.absolute().parents if snapshots.name == "snapshots"]
    return [folder.resolve() for folder in blobs if folder.is_dir()]


def _folders(root: Path) -> Iterator[Path]:
    """Where images may be: known names first, then any folder below the root, each also with one of its own name."""
    yield root
    for parent in (root, root / "images"):
        yield from (parent / name for name in FOLDERS if (parent / name).is_dir())
    with os.scandir(root) as items:
        others = sorted(path for item in items if (path := root / item.name).is_dir())  # of a link to itself, too
    for folder in others:
        yield folder
        if (folder / folder.name).is_dir():
            yield folder / folder.name
