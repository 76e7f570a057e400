"""`goalgrid data check`: report all problems of a user's copy of a data set at once, and what it contains."""

import os
import shlex
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any
from unicodedata import is_normalized, normalize

from goalgrid.grid import catalog
from goalgrid.grid.columns import Columns
from goalgrid.grid.errors import counted
from goalgrid.grid.groups import grouped
from goalgrid.grid.settings import DatasetSettings
from goalgrid.retrieval.data import annotations, precomp
from goalgrid.retrieval.data.content import Stamp, content
from goalgrid.retrieval.data.file_slice import FileSlice
from goalgrid.retrieval.data.forms import CheckProgress, Part, SplitSize, forms
from goalgrid.retrieval.data.picture_files import remedy, undecoded, ways_of
from goalgrid.retrieval.data.rows import Rows
from goalgrid.retrieval.splits.pairs import DataError, Listing
from goalgrid.retrieval.splits.problems import Problem, faults_of_captions, faults_of_ids
from goalgrid.retrieval.words.splitting import MOST_UNKNOWN, READ_PIECES, frequent, spelled_shares, unknown_share

FEATURES = "precomputed features"
MIN_COUNT: int = DatasetSettings.model_fields["min_count"].default
"""Default of `dataset.min_count`: how often a word must occur in the training captions to enter the vocabulary."""
STEP = 100
"""Number of images between two progress reports."""
ALIKE = 5
"""Maximum number of problems with the same fix to list; the others are only counted (`--json` lists all)."""


@dataclass(frozen=True)
class DataReport:
    """All forms of the data found under the root, with problems; remarks are listed separately."""

    name: str
    root: Path
    parts: list[Part]
    problems: list[Problem]
    remarks: list[Problem] = field(default_factory=list)

    def lines(self) -> list[str]:
        """Return the report as lines: the problems, the parts found, and the remarks."""
        parts = [line for part in self.parts for line in part.lines()]
        parts += ["", *(f"note: {remark}" for remark in self.remarks)] if self.remarks else []
        place = f"{self.name} under {self.root}"
        if not self.problems:
            return [f"{place}: no problems", *parts]
        text = [f"{place}: {counted(len(self.problems), 'problem')}", ""]
        for fix, alike in grouped((problem.fix, problem) for problem in self.problems).items():
            text += [f"- {problem.place}: {problem.what}" for problem in alike[:ALIKE]]
            text += [f"  and {len(alike) - ALIKE:,} more with the same fix"] if len(alike) > ALIKE else []
            text += [f"  fix: {fix}", ""]
        return [*text, *parts]

    def to_dict(self) -> dict[str, Any]:
        problems, remarks = ([asdict(problem) for problem in of] for of in (self.problems, self.remarks))
        parts = [part.to_dict() for part in self.parts]
        named = {"name": self.name, "root": str(self.root)}
        return {**named, "problems": problems, "remarks": remarks, "parts": parts}


def check(
    name: str,
    root: Path,
    *,
    workers: int = 2,
    progress: CheckProgress = lambda what, done, of: None,
    columns: Columns = (),
    copies: Path | None = None,
) -> DataReport:
    """Check all data under the root: raw images with annotations, and precomputed features.

    A shipped data set is compared with its official size; any other name denotes the user's own data.
    `columns`, `copies`: see `opening.load`.
    """
    official = catalog.described(name)
    if not root.is_dir():
        missing = Problem(str(root), "there is no such folder", "Give an existing folder with --root.")
        return DataReport(name, root, [], [missing])
    parts, stamp = list[Part](), Stamp(root)
    if annotated := annotations.Annotated.read(name, root, columns, copies):
        parts.append(_pictures(annotated, stamp, progress, workers))
    if folder := precomp.find(name, root):
        parts.append(_features(name, folder, stamp, progress))
    parts += [form.faults(root, official, progress) for form in forms() if form.begun(root)]
    for part in parts:
        for split, size in part.sizes.items():
            if size.images and (odd := catalog.odd_size(name, split, size.images, size.captions)):
                fix = "Use the complete split, or give your subset another name."
                part.problems.append(Problem(f"{split} split of {part.path}", odd, fix))
        _words(part)
        if all(problem.kind == "remark" for problem in part.problems):
            _fingerprint(part, name, root, stamp, columns, copies)
    nothing = [] if parts else [_nothing(name, root, columns)]
    every = [_spelled(problem) for part in parts for problem in part.problems] + nothing
    by_kind = grouped((problem.kind == "remark", problem) for problem in every)
    return DataReport(name, root, parts, by_kind.get(False, []), by_kind.get(True, []))


def _spelled(problem: Problem) -> Problem:
    """Extend the problem of a missing file if a file exists whose name differs only in Unicode normalisation."""
    path = Path(problem.place)
    composed = is_normalized("NFC", path.name)
    twin = path.with_name(normalize("NFD" if composed else "NFC", path.name))
    if not problem.what.endswith("is missing") or not os.path.lexists(twin):
        return problem
    what = f"{problem.what}; a file there has the same name in another Unicode normalisation, as written by macOS"
    rename = f"convmv -r -f utf-8 -t utf-8 {'--nfc' if composed else '--nfd'} --notest"
    return replace(problem, what=what, fix=f"Rename all such files: {rename} {shlex.quote(str(path.parent))}")


def _pictures(annotated: annotations.Annotated, stamp: Stamp, progress: CheckProgress, workers: int) -> Part:
    """Check everything the annotations list; decode and hash each image file."""
    path = annotated.path
    part = Part(f"raw images, {annotated.title}", path, problems=annotated.problems)
    for split, entries in annotated.by_split.items():
        part.captions[split] = [caption for entry in entries for caption in entry.captions]
        part.sizes[split] = SplitSize.of(Listing.of(entries, [entry.captions for entry in entries]))
        if not part.sizes[split].captions and not (annotated.problems and not any(annotated.by_split.values())):
            fix = "Each of train, val and test needs images: check the splits in the annotations."
            part.problems.append(Problem(f"{split} split of {path}", "is empty: 0 images", fix))
    part.files = list(dict.fromkeys(file for _, file in annotated.files))
    torn, part.read_as = look_at(part.files, progress, workers)
    bad = {problem.place for problem in torn}
    whole = sorted(file for file in part.files if str(file) not in bad)
    marks = dict(zip(whole, stamp.digests(whole, FileSlice.sha256), strict=True))
    by_split = {
        split: [marks.get(file, "") for file in listing.images] for split, listing in annotated.listings.items()
    }
    part.problems += [*annotated.notes(), *annotated.equal(by_split), *torn]
    return part


def look_at(
    files: Sequence[FileSlice], progress: CheckProgress = lambda what, done, of: None, workers: int = 1
) -> tuple[list[Problem], Counter[str]]:
    """Decode every file; return the problems in file order, and the number of files per kind of `READ_AS`."""
    problems, ways = list[Problem](), Counter[str]()
    with ThreadPoolExecutor(max_workers=workers, thread_name_prefix="check") as pool:
        for number, (fault, ways_of_file) in enumerate(pool.map(_look, files), 1):
            if fault:
                problems.append(Problem(str(files[number - 1]), f"the image cannot be read: {fault}", remedy(fault)))
            ways.update(ways_of_file)
            if number % STEP == 0 or number == len(files):
                progress("decoding images", number, len(files))
    return problems, ways


def _look(file: FileSlice) -> tuple[str, tuple[str, ...]]:
    """Return why this file cannot be decoded (empty if it can), and how it is read."""
    try:
        with undecoded(file) as image:
            image.load()
            return "", ways_of(image)
    except Exception as error:  # decoders raise many kinds on a torn file, and every kind is a fault of the file
        return str(error).replace(f" {str(file.path)!r}", "") or type(error).__name__, ()


def _features(name: str, folder: Path, stamp: Stamp, progress: CheckProgress) -> Part:
    """Check all three splits of precomputed features. Files are read completely, however large they are."""
    part, test_splits = Part(FEATURES, folder), catalog.described(name).test_splits
    shapes, keys = dict[str, str](), dict[str, list[str]]()
    files, rows, images = dict[str, precomp.SplitFiles](), dict[str, Rows](), dict[str, tuple[Rows, list[int]]]()
    for split, file in precomp.splits(folder, test_splits).items():
        array, captions, ids = precomp.read(folder, file, part.problems)
        part.files += map(FileSlice, precomp.files(folder, file))
        part.problems += faults_of_captions(captions, str(folder / f"{file}_caps.txt"))
        keys[split], part.captions[split] = ids, captions
        count = len(ids) if len(ids) < len(captions) else len(set(ids))  # as far as ids tell
        if array is not None:
            path = folder / f"{file}_ims.npy"
            shapes[split] = " x ".join(map(str, array.shape[1:]))
            part.notes[split] = f"{shapes[split]} {array.dtype}"
            files[split] = precomp.SplitFiles(array, captions, ids)
            rows[split] = Rows.read(array, partial(_reading, progress, path, len(array)))
            stamp.digests([FileSlice(path)], partial(_text, rows[split]))
            part.problems += rows[split].problems(path)
            if listing := precomp.align(*files[split], folder / file, part.problems, rows[split].repeats):
                count, part.sizes[split] = len(listing.images), SplitSize.of(listing)
                images[split] = rows[split], listing.images.tolist()
        if ids and len(ids) != len(captions):
            part.problems += faults_of_ids(ids, len(captions), count, f"{folder / file}_ids.txt")
    if len(set(shapes.values())) > 1:
        differ = ", ".join(f"{split} {shape}" for split, shape in shapes.items())
        what = f"the feature shape per image differs between splits: {differ}"
        fix = "All splits must come from the same extractor; take them from the same package."
        part.problems.append(Problem(str(folder), what, fix))
    sizes = {split: (size.images, size.captions) for split, size in part.sizes.items()}
    part.problems += precomp.equal(keys, images, folder, published=catalog.published(name, sizes))
    part.problems += [*precomp.unnamed(rows, files, folder), *precomp.unread(folder, test_splits)]
    return part


def _reading(progress: CheckProgress, path: Path, rows: int, done: int) -> None:
    progress(f"reading {path.name}", done, rows)


def _text(rows: Rows, file: FileSlice) -> str:
    """Return the text that a stamp stores for a file whose rows have been read."""
    return str(rows)


def _words(part: Part) -> None:
    """Report how many words of val and test are not in the training vocabulary, with the default settings."""
    if not all(part.captions.get(split) for split in ("train", "val", "test")):
        return
    known, ever = (frozenset(frequent(part.captions["train"], count)) for count in (MIN_COUNT, 1))
    shares = {split: unknown_share(part.captions[split], known) for split in ("val", "test")}
    way_out = "; lower dataset.min_count, or use a pretrained text encoder, which reads subwords"
    few = way_out if shares["val"] > MOST_UNKNOWN else ""
    part.words = f"{len(known):,} words occur at least {MIN_COUNT} times in train; {spelled_shares(shares)}{few}"
    if (share := unknown_share(part.captions["val"], ever)) > MOST_UNKNOWN:
        what = f"{100 * share:.1f} % of the words of the validation captions occur in no training caption"
        fix = f"Add training captions, or {READ_PIECES}."
        part.problems.append(Problem(f"captions of {part.path}", what, fix, "note"))


def _fingerprint(part: Part, name: str, root: Path, stamp: Stamp, columns: Columns, copies: Path | None) -> None:
    """Compute the fingerprint stored in records; report data that it cannot be computed for as a problem."""
    features = part.format in (FEATURES, *(form.title for form in forms()))
    try:
        known = content(name, root, features=features, read=stamp.paths, columns=columns, copies=copies)
        part.fingerprint = known.fingerprint
    except DataError as error:
        part.problems.append(Problem(str(part.path), str(error), "Training would stop with the same error."))


def _nothing(name: str, root: Path, columns: Columns) -> Problem:
    if here := annotations.begun(root, columns):
        return here
    further = {form.noun: form.expected for form in forms()}
    every = [annotations.EXPECTED, "train_ims.npy with train_caps.txt (features)", *further.values()]
    expected = further.get(catalog.described(name).noun, f"one of: {'; '.join(every)}")
    hint = f" {name}" if name in catalog.names("datasets") else ""
    return Problem(
        str(root), f"no data in a known form; expected {expected}", f"To see the layout: goalgrid data where{hint}."
    )
