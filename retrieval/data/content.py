"""Content of a copy of a data set, computed from its bytes: fingerprint, sizes, and problems.

All bytes are read once. The result is cached with a stamp of the files that were read: their paths, sizes and times.
While the stamp is valid, only the status of the files is queried; if it is not, only changed files are read again.
This module does not import torch, so that `status` and `table` can compare data, too.
"""

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any

from pydantic import TypeAdapter

from goalgrid.grid import catalog
from goalgrid.grid.columns import Columns
from goalgrid.grid.errors import LARGE, UserError, counted, parsed_json, regular_bytes
from goalgrid.grid.identity import digest
from goalgrid.grid.settings.components import PartRead
from goalgrid.grid.settings.image_views import View
from goalgrid.grid.store.files import write_text
from goalgrid.retrieval.data import annotations, precomp
from goalgrid.retrieval.data.file_slice import FileSlice
from goalgrid.retrieval.data.forms import READ_AS, Summed, form_of, forms
from goalgrid.retrieval.data.rows import Rows, finite_rows
from goalgrid.retrieval.splits.pairs import DataError, Listing, check_sizes
from goalgrid.retrieval.splits.problems import Problem, faults_of_captions
from goalgrid.retrieval.words import vocabulary_files

VERSION = "2:"
"""Prefix of data fingerprints. To be increased when they are computed differently, as they are not comparable then."""
VALUES = "~"
"""Separator in a fingerprint before the hash of the columns an objective reads; other objectives ignore that hash."""
SEEN = "Networks see them as an image viewer shows them."
EMBEDDED = "1"
"""To be increased when the rendered content of embedded data sets changes."""
NOTED = 3
"""To be increased when `Content.problems` reports more for the same files, so that cached results are recomputed."""
PART = "//"
"""Separator in a stamp between a file's path and a byte range in it; no path contains it."""
THREADS = 4
"""Number of files read in parallel."""


@dataclass(frozen=True)
class Content:
    """Content of a copy of a data set.

    Args:
        fingerprint: hash of captions, splits and images or features, and of an external vocabulary if one is used.
        images: hash of the images or features alone.
        sizes: for each split, its name and the numbers of images and captions.
        problems: leaks, notes and remarks.
        read_as: number of images per kind of `forms.READ_AS`.
        repeats: for each split, how often each image's row of features is repeated, see `Rows.repeats`.
    """

    fingerprint: str
    images: str
    sizes: tuple[tuple[str, int, int], ...]
    problems: tuple[Problem, ...] = ()
    read_as: tuple[tuple[str, int], ...] = ()
    repeats: tuple[tuple[str, tuple[int, ...]], ...] = ()

    def leaks(self, *, chooses: bool) -> list[Problem]:
        """Return problems of test images leaking into the training split.

        With `chooses` (validation selects the model), leaks into the validation split are included.
        """
        kinds = ("leak", "tested validation") if chooses else ("leak",)
        return [problem for problem in self.problems if problem.kind in kinds]


def content(
    name: str,
    root: Path | None,
    *,
    features: bool,
    vocabulary: str | None = None,
    kept: Path | None = None,
    read: Mapping[str, Sequence[Any]] = MappingProxyType({}),
    columns: Columns = (),
    copies: Path | None = None,
) -> Content:
    """Return the content of the data set under this root; raises DataError if the data cannot be used.

    Args:
        features: whether to read precomputed features instead of images.
        vocabulary: path, below the root, of an external vocabulary, which then counts as data.
        kept: folder that caches the result with its stamp; if None, everything is read except the files in `read`.
        read: paths of a stamp, whose unchanged files need not be read again.
        columns: the user's choice of table columns.
        copies: folder for copies of images embedded in tables; default: `kept`.
    """
    known = catalog.described(name)
    if known.embedded:
        mark = digest([name, EMBEDDED])
        sizes = tuple((split, size.images, size.captions) for split, size in known.splits.items())
        return Content(f"{VERSION}{mark[:16]}", mark, sizes)
    root = checked_root(name, root)
    try:
        whole = _content(name, root, read, columns, copies or kept, features=features, cache=kept)
        if vocabulary is None:
            return whole
        data, *of_values = whole.fingerprint.split(VALUES)
        mark = digest([data, vocabulary_files.read(root / vocabulary)])
        return replace(whole, fingerprint=VALUES.join([f"{VERSION}{mark[:16]}", *of_values]))
    except OSError as error:
        raise DataError(f"root of data set {name!r}: {error.filename or root} cannot be read: {error}.") from error


def _content(
    name: str,
    root: Path,
    read: Mapping[str, Sequence[Any]],
    columns: Columns,
    copies: Path | None,
    *,
    features: bool,
    cache: Path | None,
) -> Content:
    place = digest([str(root.absolute()), root.stat().st_ino, *columns])[:16]
    file = cache / f"{name}-{'rows' if features else 'images'}-{place}.json" if cache else None
    paths, known = _kept(file) if file else ({}, None)
    files = {path: status for path, status in paths.items() if PART not in path}
    same = all(_status(root / path) == tuple(status[:2]) for path, status in files.items())
    if known and same and known.fingerprint.startswith(VERSION):
        return known
    stamp = Stamp(root, {**read, **paths})
    summed = _features(name, root, stamp) if features else _pictures(name, root, stamp, columns, copies)
    listings = summed.listings
    sizes = {split: (len(listing.images), len(listing.captions)) for split, listing in listings.items()}
    check_sizes(repr(name), sizes)
    images = digest(summed.marks)
    listed = {split: [listing.captions, listing.image_of_text.tolist()] for split, listing in listings.items()}
    mark = digest([images, listed])
    known = Content(
        f"{VERSION}{mark[:16]}{_mark_of_values(listings)}",
        images,
        tuple((split, *size) for split, size in sizes.items()),
        tuple(problem for problem in summed.problems if problem.kind != "fault"),
        tuple(summed.read_as.items()),
        tuple((split, tuple(often)) for split, often in summed.repeats.items()),
    )
    if file:
        written = {"paths": stamp.paths, "content": asdict(known), "noted": NOTED}
        text = json.dumps(written, separators=(",", ":"), sort_keys=True)
        with suppress(UserError):  # a disk that takes no stamp costs the next reader time
            write_text(file, f"{hashlib.sha256(text.encode()).hexdigest()}\n{text}")
    return known


def _mark_of_values(listings: Mapping[str, Listing[Any]]) -> str:
    """Return the suffix of a fingerprint for the columns that an objective reads; empty if it reads none."""
    values = {
        split: {name: column.tolist() for name, column in listing.values.items()} for split, listing in listings.items()
    }
    return f"{VALUES}{digest(values)[:8]}" if any(values.values()) else ""


def _kept(file: Path) -> tuple[dict[str, Sequence[Any]], Content | None]:
    """Return the stamp's paths and the content cached in a file; nothing if it is missing or damaged.

    If an earlier version wrote the file, only the paths are returned, so that hashed files need not be read again.
    """
    with suppress(OSError, ValueError, KeyError):
        mark, _, text = regular_bytes(file, LARGE).decode().partition("\n")
        if mark == hashlib.sha256(text.encode()).hexdigest():
            stored = parsed_json(text)
            current = stored.get("noted") == NOTED
            return stored["paths"], TypeAdapter(Content).validate_python(stored["content"]) if current else None
    return {}, None


def checked_root(name: str, root: Path | None) -> Path:
    """Return the root of a data set; raises DataError if it is not a folder."""
    if root is None:
        known = catalog.described(name)
        needs = f" It needs {known.where}." if known.where else ""
        raise DataError(
            f"no root for data set {name!r}.{needs} Give --root DIR, or in the grid file: [data.{name}] root = ..."
        )
    if not root.is_dir():
        if str(root).startswith("$"):
            raise DataError(f"root of data set {name!r}: {root}, but {root.parts[0]} is not set on this host.")
        raise DataError(f"root of data set {name!r}: no folder at {root.absolute()}.")
    return root


def check_form(name: str, root: Path | None, view: View | None, reads: tuple[PartRead, ...]) -> None:
    """Check that a data set has the images, features or other form of data the model reads; raises UserError."""
    if view is not None:
        return
    if catalog.described(name).embedded:
        raise UserError(f"data set {name!r} has images only; choose a recipe that reads them, e.g. cnn-bow.")
    folder = checked_root(name, root)
    if reads:
        form_of(reads).check(folder, reads)
    elif form := next((form for form in forms() if form.has_features(folder)), None):
        raise DataError(
            f"data set {name!r} has {form.title}, but this recipe reads images: choose a recipe for {form.noun}s, "
            f"e.g. {form.recipes}."
        )


def package(name: str, root: Path) -> Path:
    """Return the folder of precomputed features under a root; raises DataError if there is none."""
    if folder := precomp.find(name, root):
        return folder
    raise DataError(
        f"no train_ims.npy under {root}, the root of {name!r}: this recipe reads precomputed features. "
        "For raw images, choose a cnn-* recipe: --set 'recipes=[\"cnn-bow\"]'."
    )


class Stamp:
    """Stamp of the files that were read, and of the folders whose entries determine which files are read."""

    def __init__(self, root: Path, before: Mapping[str, Sequence[Any]] = {}) -> None:
        self.root, self.before = root, before
        self.paths: dict[str, Sequence[Any]] = {}
        """By path below the root: size, time in ns, SHA-256 if it was computed here, and how an image is read."""
        self._look_at([root, *sorted(path for path in root.iterdir() if path.is_dir())])

    def note(self, files: Iterable[Path]) -> None:
        """Add files whose content is hashed elsewhere, by size and time only; to be called once they are read."""
        for file in files:
            self._look_at([file.parent, *([file] if file.exists() else [])])

    def digests(self, files: Sequence[FileSlice], summed: Callable[[FileSlice], str]) -> list[str]:
        """Return the SHA-256 of every file; `summed` computes it for files whose stamp has changed.

        Raises DataError if a file is unreadable.
        """
        whole = {file.path for file in files if file.length is not None}
        self._look_at(dict.fromkeys(file.path.parent for file in files) | dict.fromkeys(whole))
        with ThreadPoolExecutor(THREADS, thread_name_prefix="content") as pool:
            return list(pool.map(partial(self._digest, summed=summed), files))

    def ways(self, pictures: Sequence[FileSlice]) -> list[str]:
        """Return how each image is read: keys of `forms.READ_AS`, separated by commas; call `digests` first."""
        with ThreadPoolExecutor(THREADS, thread_name_prefix="content") as pool:
            return list(pool.map(self._ways, pictures))

    def _look_at(self, paths: Iterable[Path]) -> None:
        self.paths |= {self._key(FileSlice(path)): (*_status(path), "") for path in paths}

    def _key(self, file: FileSlice) -> str:
        """Return the path below the root (absolute if it is elsewhere), with the byte range for a part of a file."""
        path = file.path.relative_to(self.root) if file.path.is_relative_to(self.root) else file.path.absolute()
        return str(path) if file.length is None else f"{path}{PART}{file.offset}+{file.length}"

    def _status(self, file: FileSlice) -> tuple[int, int]:
        """Return size and time; for a part of a file, those already noted for the file."""
        if file.length is None:
            return _status(file.path)
        size, time, *_ = self.paths[self._key(FileSlice(file.path))]
        return size, time

    def _digest(self, file: FileSlice, summed: Callable[[FileSlice], str]) -> str:
        key, status = self._key(file), self._status(file)
        size, time, mark, *_ = self.before.get(key, (-1, -1, ""))
        try:
            self.paths[key] = (*status, mark if mark and (size, time) == status else summed(file))
        except OSError as error:
            raise DataError(f"{file} cannot be read: {error.strerror or error}. Download this file again.") from error
        return str(self.paths[key][2])

    def _ways(self, picture: FileSlice) -> str:
        key = self._key(picture)
        summed, before = self.paths[key], self.before.get(key, ())
        ways = before[3] if len(before) > 3 and tuple(before[:3]) == tuple(summed) else _ways_of(picture)
        self.paths[key] = (*summed[:3], ways)
        return str(ways)


def _ways_of(picture: FileSlice) -> str:
    from goalgrid.retrieval.data.picture_files import read_as

    with suppress(DataError):  # training names a damaged picture
        return ",".join(read_as(picture))
    return ""


def _pictures(name: str, root: Path, stamp: Stamp, columns: Columns, copies: Path | None) -> Summed:
    if source := annotations.find(name, root, columns):
        stamp.note(annotations.files(*source, root, columns))
    elif package := precomp.find(name, root):
        raise DataError(
            f"{package} has features, but this recipe reads images: choose a recipe for features, e.g. fc-bow, or put "
            "images with their annotations under the root. goalgrid recipes shows what a recipe reads."
        )
    annotated = annotations.Annotated.of(name, root, columns, copies)
    listings = annotated.listings
    marks, sums, read_as = dict[str, str](), dict[str, list[str]](), Counter[str]()
    for split, listing in listings.items():
        sums[split], ways = stamp.digests(listing.images, FileSlice.sha256), stamp.ways(listing.images)
        marks[split] = digest([f"{summed} {way}".rstrip() for summed, way in zip(sums[split], ways, strict=True)])
        read_as.update(way for listed in ways for way in listed.split(",") if way)
    problems = [*annotated.problems, *annotated.notes(), *annotated.equal(sums)]
    problems += [
        Problem(str(annotated.path), f"{counted(count, 'picture')} {READ_AS[way]}", SEEN, "remark")
        for way, count in read_as.items()
    ]
    return Summed(marks, listings, problems, read_as)


def _features(name: str, root: Path, stamp: Stamp) -> Summed:
    known, precomputed = catalog.described(name), precomp.find(name, root)
    for form in forms():
        expected = known.noun == form.noun or form.begun(root)
        if form.has_features(root) or (expected and not precomputed):
            return form.summed(root, known.test_splits, stamp)
    folder = package(name, root)
    marks, listings = dict[str, str](), dict[str, Listing[precomp.Features]]()
    files, rows, problems = dict[str, precomp.SplitFiles](), dict[str, Rows](), list[Problem]()
    for split, file in precomp.splits(folder, known.test_splits).items():
        array, texts, ids = precomp.files(folder, file)
        stamp.note([texts, ids])
        files[split] = precomp.present(folder, file)
        rows[split] = Rows.from_text(*stamp.digests([FileSlice(array)], lambda file: str(finite_rows(file.path))))
        listings[split] = precomp.fitted(folder, file, files[split], rows[split].repeats)
        marks[split] = digest([rows[split].whole, listings[split].images.rows.tolist()])
        problems += [*faults_of_captions(files[split].captions, str(texts)), *rows[split].problems(array)]
    images = {split: (rows[split], listing.images.rows.tolist()) for split, listing in listings.items()}
    sizes = {split: (len(listing.images), len(listing.captions)) for split, listing in listings.items()}
    by_split = {split: of.ids for split, of in files.items()}
    problems += precomp.equal(by_split, images, folder, published=catalog.published(name, sizes))
    problems += [*precomp.unnamed(rows, files, folder), *precomp.unread(folder, known.test_splits)]
    return Summed(marks, listings, problems, repeats={split: of.repeats for split, of in rows.items()})


def _status(path: Path) -> tuple[int, int]:
    """Return size and modification time (ns) of a file or folder; -1, -1 if it does not exist."""
    try:
        status = path.stat()
    except OSError:
        return -1, -1
    return status.st_size, status.st_mtime_ns
