"""What a copy of a data set holds, told by its bytes: fingerprints, sizes, and what is wrong with it.

Reading every byte is done once. The result is kept with a stamp of the files that were read: paths, sizes and times.
While the stamp holds, only the files' status is asked for. Where it does not, files whose own stamp holds are not read
again. This module loads no torch, so that `status` and `table` can compare data, too.
"""

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from goalgrid.grid import catalog
from goalgrid.grid.errors import UserError
from goalgrid.grid.errors.regular_files import regular_bytes
from goalgrid.grid.identity import digest
from goalgrid.grid.settings.image_views import View
from goalgrid.grid.settings.parts import PartRead
from goalgrid.grid.store.files import write_text
from goalgrid.retrieval.data import annotations, feature_faults, parts, picture_faults, precomp_files
from goalgrid.retrieval.data.forms import form_of, forms
from goalgrid.retrieval.splits.pairs import DataError, check_sizes
from goalgrid.retrieval.splits.problems import Problem, array_of, faults_of_captions
from goalgrid.retrieval.words import vocabulary_files

VERSION = "2:"
"""Begins a fingerprint of data. Another way of making fingerprints gets another number: they cannot be compared."""
EMBEDDED = "1"
"""To be counted up when what an embedded data set renders changes."""
THREADS = 4
"""Files read at a time."""
BLOCK = 1 << 26
"""Bytes of features read at a time."""


@dataclass(frozen=True)
class Content:
    """What a copy of a data set holds.

    Args:
        fingerprint: of captions, splits and images or features, and of a peer's vocabulary that reads the captions.
        images: fingerprint of the images or features alone.
        sizes: split, images and captions.
        problems: leaks and notes.
    """

    fingerprint: str
    images: str
    sizes: tuple[tuple[str, int, int], ...]
    problems: tuple[Problem, ...] = ()

    @property
    def leaks(self) -> list[Problem]:
        """Test images that stand in the training split, too."""
        return [problem for problem in self.problems if problem.kind == "leak"]


def content(
    name: str, root: Path | None, *, features: bool, vocabulary: str | None = None, kept: Path | None = None
) -> Content:
    """The content of the data set under this root, as precomputed features or as images.

    Args:
        vocabulary: a peer's words, by their path below the root, which count as data.
        kept: a folder that keeps the result with its stamp; None: everything is read.

    Raises:
        DataError: the data cannot be used; says why.
    """
    if catalog.described(name).embedded:
        sizes = catalog.described(name).splits.items()
        mark = digest([name, EMBEDDED])
        return Content(f"{VERSION}{mark[:16]}", mark, tuple((split, s.images, s.captions) for split, s in sizes))
    root = checked_root(name, root)
    try:
        found = _content(name, root, features=features, kept=kept)
        if vocabulary is None:
            return found
        whole = digest([found.fingerprint, vocabulary_files.read(root / vocabulary)])
        return replace(found, fingerprint=f"{VERSION}{whole[:16]}")
    except OSError as error:
        raise DataError(f"root of data set {name!r}: {error.filename or root} cannot be read: {error}.") from error


def _content(name: str, root: Path, *, features: bool, kept: Path | None) -> Content:
    form = "features" if features else "images"
    place = digest([str(root.absolute()), root.stat().st_ino])[:16]
    file = kept / f"{name}-{form}-{place}.json" if kept else None
    before = Stamp.read(file, root) if file else Stamp(root)
    if before.content and before.holds():
        return before.content
    now = Stamp(root, before=before.files)
    now.content = _features(name, root, now) if features else _pictures(name, root, now)
    if file:
        with suppress(UserError):  # a disk that takes no stamp costs the next reader time
            now.write(file)
    return now.content


def checked_root(name: str, root: Path | None) -> Path:
    """The root of a data set, which must be a folder.

    Raises:
        DataError: it is none.
    """
    if root is None:
        known = catalog.described(name)
        wanted = f" It needs {known.where}." if known.where else ""
        raise DataError(
            f"no root for data set {name!r}.{wanted} Give --root DIR, or in the grid file: [data.{name}] root = ..."
        )
    if not root.is_dir():
        raise DataError(f"root of data set {name!r}: no folder at {root}.")
    return root


def check_form(name: str, root: Path | None, view: View | None, reads: tuple[PartRead, ...]) -> None:
    """Check that a data set has images, features or the form of a part's, whichever the model reads.

    Raises:
        UserError: it has something else, or not all that the model reads.
    """
    if view is not None:
        return
    if catalog.described(name).embedded:
        raise UserError(f"data set {name!r} has images only; choose a recipe that reads them, e.g. cnn-bow.")
    folder = checked_root(name, root)
    if reads:
        form_of(reads).check(folder, reads)
    elif form := next((form for form in forms() if form.has_features(folder)), None):
        raise DataError(
            f"data set {name!r} has {form.contents}, and this recipe reads images: take a recipe for {form.noun}s, "
            f"e.g. {form.recipes}."
        )


def package(name: str, root: Path) -> Path:
    """The folder of precomputed features under a root.

    Raises:
        DataError: there is none.
    """
    if folder := precomp_files.find(name, root):
        return folder
    raise DataError(
        f"no train_ims.npy under {root}, the root of {name!r}: this recipe reads precomputed features. "
        "For raw images choose a cnn-* recipe: --set 'recipes=[\"cnn-bow\"]'."
    )


class Stamp:
    """The files that were read, each with size, time and SHA-256; and the folders whose entries decide what is read."""

    def __init__(self, root: Path, *, before: Mapping[str, Sequence[Any]] | None = None) -> None:
        self.root, self.before = root, before or {}
        self.files: dict[str, Sequence[Any]] = {}
        """By path below the root: size, time in ns and SHA-256."""
        self.folders = {str(path.relative_to(root)): _time(path) for path in _deciding(root)}
        self.content: Content | None = None

    @classmethod
    def read(cls, file: Path, root: Path) -> "Stamp":
        """The stamp that this file keeps; an empty stamp where there is none, or a damaged one."""
        found = cls(root)
        with suppress(OSError, ValueError, KeyError, TypeError):
            mark, _, text = regular_bytes(file).decode().partition("\n")
            if mark == hashlib.sha256(text.encode()).hexdigest():
                kept = json.loads(text)
                found.files, found.folders, told = kept["files"], kept["folders"], kept["content"]
                sizes = tuple((split, images, captions) for split, images, captions in told["sizes"])
                problems = tuple(Problem(**problem) for problem in told["problems"])
                found.content = Content(told["fingerprint"], told["images"], sizes, problems)
        return found

    def write(self, file: Path) -> None:
        assert self.content
        kept = {"files": self.files, "folders": self.folders, "content": asdict(self.content)}
        text = json.dumps(kept, separators=(",", ":"), sort_keys=True)
        write_text(file, f"{hashlib.sha256(text.encode()).hexdigest()}\n{text}")

    def holds(self) -> bool:
        """Whether every file and folder has the size and time that it had, and the content is of this version."""
        assert self.content
        return (
            self.content.fingerprint.startswith(VERSION)
            and all(_time(self.root / path) == time for path, time in self.folders.items())
            and all(_status(self.root / path) == tuple(stamp[:2]) for path, stamp in self.files.items())
        )

    def note(self, files: Iterable[Path]) -> None:
        """Put files into the stamp whose content is hashed elsewhere, once it is read: size and time count here."""
        for file in files:
            self.folders |= {str(file.parent.relative_to(self.root)): _time(file.parent)}
            if file.exists():
                self.files[str(file.relative_to(self.root))] = (*_status(file), "")

    def digests(self, files: Sequence[Path], summed: Callable[[Path], str]) -> list[str]:
        """SHA-256 of every file by `summed`, read where its stamp does not hold.

        Raises:
            DataError: a file cannot be read.
        """
        folders = dict.fromkeys(file.parent for file in files)
        self.folders |= {str(folder.relative_to(self.root)): _time(folder) for folder in folders}
        with ThreadPoolExecutor(THREADS, thread_name_prefix="content") as pool:
            return list(pool.map(partial(self._digest, summed=summed), files))

    def _digest(self, file: Path, summed: Callable[[Path], str]) -> str:
        key = str(file.relative_to(self.root))
        try:
            status = _status(file)
            size, time, known = self.before.get(key, (-1, -1, ""))
            self.files[key] = (*status, known if known and (size, time) == status else summed(file))
        except OSError as error:
            raise DataError(f"{file} cannot be read: {error.strerror or error}. Fetch this file again.") from error
        return str(self.files[key][2])


def _pictures(name: str, root: Path, stamp: Stamp) -> Content:
    if found := annotations.find(name, root):
        stamp.note(annotations.FORMATS[found[0]].files(found[1], root))
    annotated = annotations.Annotated.of(name, root)
    sums = iter(stamp.digests([file for _, file in annotated.files], file_sum))
    marks, sizes, notes = dict[str, str](), dict[str, tuple[int, int]](), list(annotated.notes)
    listed, names = dict[str, Any](), dict[str, list[str]]()
    for split, entries in annotated.by_split.items():
        listing = annotated.listing(split)
        sizes[split] = len(listing.files), len(listing.captions)
        names[split] = [entry.names[0] for entry in entries]
        marks[split] = digest([next(sums) for _ in listing.files])
        listed[split] = [listing.captions, listing.image_of_text.tolist()]
        notes += faults_of_captions(listing.captions, f"captions of the {split} split of {annotated.path}")
    notes += [*parts.overlaps(names, str(annotated.path), "image"), *picture_faults.twice(names, annotated.path)]
    return _whole(name, marks, listed, sizes, notes)


def _features(name: str, root: Path, stamp: Stamp) -> Content:
    known, precomputed = catalog.described(name), precomp_files.find(name, root)
    for form in forms():
        expected = known.noun == form.noun or form.begun(root)
        if form.has_features(root) or (expected and not precomputed):
            return _whole(name, *form.summed(root, known.test_splits, stamp))
    folder = package(name, root)
    files = precomp_files.splits(folder, known.test_splits)
    marks, sizes, notes = dict[str, str](), dict[str, tuple[int, int]](), list[Problem]()
    listed, keys = dict[str, Any](), dict[str, list[str]]()
    for split, file in files.items():
        array, texts, ids = precomp_files.files(folder, file)
        stamp.note([texts, ids])
        _, rows, captions, image_of_text, keys[split] = precomp_files.aligned(folder, file)
        sizes[split] = len(rows), len(captions)
        marks[split] = digest([*stamp.digests([array], finite_sum), rows.tolist()])
        listed[split] = [captions, image_of_text.tolist()]
        notes += faults_of_captions(captions, str(texts))
    notes += feature_faults.overlapping(keys, folder)
    return _whole(name, marks, listed, sizes, notes)


def _whole(
    name: str,
    marks: Mapping[str, str],
    listed: Mapping[str, Any],
    sizes: Mapping[str, tuple[int, int]],
    notes: Sequence[Problem],
) -> Content:
    check_sizes(repr(name), sizes)
    images = digest(dict(marks))
    whole = digest([images, dict(listed)])
    kept = tuple(problem for problem in notes if problem.kind != "fault")
    return Content(f"{VERSION}{whole[:16]}", images, tuple((split, *size) for split, size in sizes.items()), kept)


def file_sum(file: Path) -> str:
    """SHA-256 of a file."""
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def finite_sum(file: Path) -> str:
    """SHA-256 of an array in which all values are finite.

    Raises:
        DataError: a value is NaN or infinite.
    """
    array = array_of(file)
    summed = hashlib.sha256(f"{array.shape} {array.dtype}".encode())
    step = max(1, BLOCK // max(1, array[:1].nbytes))
    for start in range(0, len(array), step):
        block = np.ascontiguousarray(array[start : start + step])
        precomp_files.check_finite(file, block, np.arange(start, start + len(block)))
        summed.update(block.data)
    return summed.hexdigest()


def _deciding(root: Path) -> Iterator[Path]:
    """The root and its folders: a file that appears there may change what is read."""
    yield root
    yield from sorted(path for path in root.iterdir() if path.is_dir())


def _time(folder: Path) -> int:
    """Time of the last change of a folder's entries, in ns; -1 where there is none."""
    try:
        return folder.stat().st_mtime_ns
    except OSError:
        return -1


def _status(file: Path) -> tuple[int, int]:
    """Size and time in ns; -1 where there is no such file."""
    try:
        status = file.stat()
    except FileNotFoundError:
        return -1, -1
    return status.st_size, status.st_mtime_ns
