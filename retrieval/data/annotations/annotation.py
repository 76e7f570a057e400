"""Entries of annotations, one per image in every format, and the search for their image files.

File names in annotations are untrusted: names that point outside the root, names with `..`, and links out of the
user's folders are refused. A folder below the root may itself be a link, and other links may point into its target,
because the user put it there.
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
"""Names that public data sets give their image folders; searched below the root and below `images/`."""
ENDINGS = (".jpg", ".JPG", ".jpeg", ".JPEG", ".png", ".PNG")
"""Extensions to try if an image is missing under the name in the annotations."""
OTHER_ENDING = "Use that extension in the annotations."
SLASHES = "Separate folders with / instead of \\, which works only on Windows: {name}."
SAMPLE = 20
"""Number of entries, evenly spaced, used to detect the image folder."""


@dataclass(frozen=True)
class Annotation:
    """One image with its captions, as listed in the annotations.

    Args:
        split: train, val or test.
        names: possible paths of its file, relative to an image folder; the first that exists is used.
        place: location of the entry, for messages.
        ids: COCO annotation ids of the captions; empty if unknown.
        values: for each caption, the values of the additional columns that an objective reads.
        image: location of an image that is part of another file (e.g. a tar); None if the image is a separate file.
    """

    split: str
    names: tuple[str, ...]
    captions: tuple[str, ...]
    place: str
    ids: tuple[int, ...] = ()
    image: FileSlice | None = None
    values: tuple[tuple[float, ...], ...] = ()


def first(root: Path, folders: Sequence[str], *patterns: str) -> Path | None:
    """Return the first existing match below the root, in the order of folders, patterns and file names; else None."""
    paths = (path for folder in folders for pattern in patterns for path in sorted((root / folder).glob(pattern)))
    return next((path for path in paths if path.exists()), None)


def entries_of(
    split: str, pairs: Iterable[tuple[str, str]], place: Path, folder: str = "", ids: Sequence[int] = ()
) -> list[Annotation]:
    """Group (image, caption) pairs from an annotation file into one entry per image.

    `folder`: a folder in which the images may be, in addition to the image folder itself.
    `ids`: COCO annotation id of each pair; empty if unknown.
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
    """Make an absolute path inside this folder relative to it; return any other name unchanged."""
    folders = (folder.absolute(), folder.resolve()) if name.startswith("/") else ()
    return next((str(Path(name).relative_to(home)) for home in folders if Path(name).is_relative_to(home)), name)


class Outside(Exception):
    """A file name that points outside the user's folders. If a link causes this, its target is the second argument."""


class Locator:
    """Finds image files below a folder; `homes`: all folders that links may point into, the root first."""

    def __init__(self, folder: Path, homes: Sequence[Path]) -> None:
        self.folder, self.root = folder, homes[0]
        # Asked once a folder: files of a split are many, their folders few.
        self.inside = cache(lambda path: any(map(path.resolve().is_relative_to, homes)))
        self._truly_missing = 0

    def file(self, name: str) -> Path | None:
        """Return the file of this name, or None if it does not exist.

        Raises `Outside` if the name, or a link in its path, points outside the allowed folders.
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
        """Return the file of an entry; if there is none, report the reason and return None."""
        try:
            file = next((file for name in entry.names if (file := self.file(name))), None)
        except Outside as out:
            name, *target = out.args
            what, fix = f"file name {name!r}", "Use image paths relative to that folder, or copy the images into it."
            if target:
                what = f"the link {name!r}"
                link = shlex.join(["ln", "-s", str(target[0].parent), str(self.root / "linked")])
                fix = f"To allow such links, link their folder into the root ({link}), or copy the images there."
            problems.append(Problem(entry.place, f"{what} leads out of {self.folder}", fix))
            return None
        if file is None:
            path = str(self.folder / entry.names[0]).encode("utf-8", "backslashreplace").decode()
            problems.append(self.missing(path, "the image is missing", entry.names))
        return file

    def missing(self, place: str, what: str, names: Sequence[str]) -> Problem:
        """Report a missing image, mentioning a file with another extension if there is one."""
        if "\\" in names[0]:
            return Problem(place, what, SLASHES.format(name=names[0].replace("\\", "/")))
        bases, other = [base for name in names for base in (name.removesuffix(Path(name).suffix), name)], None
        if self._truly_missing < SAMPLE:  # of thousands of images on a shared disk, each look takes time
            other = self.find(base + ending for base in bases for ending in ENDINGS)
            self._truly_missing += other is None
        if other:
            return Problem(place, f"{what}; {other.parent} contains {other.name}", OTHER_ENDING)
        return Problem(place, what, "Unpack its archive again, download this file, or delete its captions.")

    def find(self, names: Iterable[str]) -> Path | None:
        """Return the first existing file among these names; None if there is none or a name points outside first."""
        with suppress(Outside):
            return next((file for name in names if (file := self.file(name))), None)
        return None

    def hits(self, entries: Sequence[Annotation]) -> int:
        """Count the entries whose file exists below this folder, including links that point outside."""
        return sum(map(self._holds, entries))

    def _holds(self, entry: Annotation) -> bool:
        try:
            return any(map(self.file, entry.names))
        except Outside as out:
            return len(out.args) > 1


def located(entries: Sequence[Annotation], root: Path, problems: list[Problem]) -> list[tuple[Annotation, FileSlice]]:
    """Pair every entry with its image file; report and leave out entries whose file is missing."""
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
    """Report that none of the images exist; `names`: the possible names of the first one."""
    name = names[0]
    what = f"no folder below it contains {name!r} or any other image listed in the annotations"
    bare = Path(name).name
    if "\\" in name:
        return Problem(str(root), what, SLASHES.format(name=name.replace("\\", "/")))
    for locator in _locators(root):
        if (problem := locator.missing(str(root), what, names)).fix == OTHER_ENDING:
            return problem
        if bare != name and locator.find([bare]):
            return Problem(str(root), what, f"{bare!r} is in {locator.folder}: use image paths relative to it.")
    return Problem(str(root), what, f"Put the images into {root / FOLDERS[0]}.")


def _best(entries: Sequence[Annotation], root: Path) -> Locator:
    """Return the folder with most files of a sample of the entries; if that finds none, of all entries."""
    locators = _locators(root)
    sample = entries[:: max(1, len(entries) // SAMPLE)]
    best = max(locators, key=lambda locator: locator.hits(sample))
    return best if best.hits(sample) else max(locators, key=lambda locator: locator.hits(entries))


def _locators(root: Path) -> list[Locator]:
    folders = list(_folders(root))
    homes = list(dict.fromkeys([*(folder.resolve() for folder in folders), *_blobs(root)]))
    return [Locator(folder, homes) for folder in folders]


def _blobs(root: Path) -> list[Path]:
    """Return the `DATA/blobs` folder of a Hugging Face cache, the target of links in `DATA/snapshots/REVISION`."""
    blobs = [snapshots.parent / "blobs" for snapshots in root.absolute().parents if snapshots.name == "snapshots"]
    return [folder.resolve() for folder in blobs if folder.is_dir()]


def _folders(root: Path) -> Iterator[Path]:
    """Yield possible image folders: known names first, then all folders of the root and `x/x` of each folder `x`."""
    yield root
    for parent in (root, root / "images"):
        yield from (parent / name for name in FOLDERS if (parent / name).is_dir())
    with os.scandir(root) as items:
        others = sorted(path for item in items if (path := root / item.name).is_dir())  # of a link to itself, too
    for folder in others:
        yield folder
        if (folder / folder.name).is_dir():
            yield folder / folder.name
