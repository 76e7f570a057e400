"""`goalgrid data check`: everything that is wrong with a user's copy of a data set, at once, and what it holds."""

import os
import shlex
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any
from unicodedata import is_normalized, normalize

import numpy as np
from PIL import Image

from goalgrid.grid import catalog
from goalgrid.grid.errors import counted
from goalgrid.grid.groups import grouped
from goalgrid.retrieval.data import annotations, precomp
from goalgrid.retrieval.data.content import content
from goalgrid.retrieval.data.forms import CheckProgress, Part, SplitSize, forms
from goalgrid.retrieval.data.picture_files import remedy, ways_of
from goalgrid.retrieval.splits.pairs import DataError, Listing
from goalgrid.retrieval.splits.problems import Problem, faults_of_captions, faults_of_ids, shortened

FEATURES = "precomputed features"
STEP = 100
"""Images between two reports of progress."""
ALIKE = 5
"""Problems with the same fix that are spelled out; further problems are counted (`--json` has all)."""


@dataclass(frozen=True)
class DataReport:
    """Every form of the data under the root, and every problem."""

    name: str
    root: Path
    parts: list[Part]
    problems: list[Problem]

    def lines(self) -> list[str]:
        """The problems of the copy, then its parts."""
        parts = [line for part in self.parts for line in part.lines()]
        place = f"{self.name} under {self.root}"
        if not self.problems:
            return [f"{place}: no problems", *parts]
        text = [f"{place}: {counted(len(self.problems), 'problem')}", ""]
        for fix, alike in grouped((problem.fix, problem) for problem in self.problems).items():
            text += [f"- {problem.place}: {problem.what}" for problem in alike[:ALIKE]]
            text += [f"  and {len(alike) - ALIKE:,} more like it"] if len(alike) > ALIKE else []
            text += [f"  fix: {fix}", ""]
        return [*text, *parts]

    def to_dict(self) -> dict[str, Any]:
        problems, parts = map(asdict, self.problems), [part.to_dict() for part in self.parts]
        return {"name": self.name, "root": str(self.root), "problems": list(problems), "parts": parts}


def check(
    name: str, root: Path, *, workers: int = 2, progress: CheckProgress = lambda what, done, of: None
) -> DataReport:
    """Look at all that lies under the root: raw images with annotations, and precomputed features.

    A shipped data set is held against its official size; any other name is a user's own data.
    """
    official = catalog.described(name)
    if not root.is_dir():
        missing = Problem(str(root), "there is no such folder", "Give the folder with --root.")
        return DataReport(name, root, [], [missing])
    parts: list[Part] = []
    if annotated := annotations.Annotated.read(name, root):
        parts.append(_pictures(annotated, progress, workers))
    if folder := precomp.find(name, root):
        parts.append(_features(folder, official.test_splits, progress))
    parts += [form.faults(root, official, progress) for form in forms() if form.begun(root)]
    for part in parts:
        for split, size in part.sizes.items():
            if size.images and (odd := catalog.odd_size(name, split, size.images, size.captions)):
                fix = "Take the split whole, or give your own subset another name."
                part.problems.append(Problem(f"{split} split of {part.path}", odd, fix))
        if not part.problems:
            _fingerprint(part, name, root)
    problems = [_spelled(problem) for part in parts for problem in part.problems]
    return DataReport(name, root, parts, problems if parts else [_nothing(name, root)])


def _spelled(problem: Problem) -> Problem:
    """A missing file's problem, with the name that a file there has in other code points, if there is one."""
    path = Path(problem.place)
    composed = is_normalized("NFC", path.name)
    twin = path.with_name(normalize("NFD" if composed else "NFC", path.name))
    if not problem.what.endswith("is missing") or not os.path.lexists(twin):
        return problem
    what = f"{problem.what}; a file there has the same letters in other code points, as macOS writes them"
    rename = f"convmv -r -f utf-8 -t utf-8 {'--nfc' if composed else '--nfd'} --notest"
    return replace(problem, what=what, fix=f"Rename all such files: {rename} {shlex.quote(str(path.parent))}")


def _pictures(annotated: annotations.Annotated, progress: CheckProgress, workers: int) -> Part:
    """Everything that the annotations name, each image file decoded."""
    path = annotated.path
    part = Part(f"raw images, {annotated.title}", path, problems=annotated.problems)
    for split, entries in annotated.by_split.items():
        part.sizes[split] = SplitSize.of(Listing.of(entries, [entry.captions for entry in entries]))
        if not part.sizes[split].captions and not (annotated.problems and not any(annotated.by_split.values())):
            fix = "Each of train, val and test needs images: look at what the annotations say of splits."
            part.problems.append(Problem(f"{split} split of {path}", "is empty: 0 images", fix))
    part.files = list(dict.fromkeys(file for _, file in annotated.files))
    unreadable, part.read_as = look_at(part.files, progress, workers)
    part.problems += [*annotated.notes(), *unreadable]
    return part


def look_at(
    files: Sequence[Path], progress: CheckProgress = lambda what, done, of: None, workers: int = 1
) -> tuple[list[Problem], Counter[str]]:
    """Files that are not whole images, in their order; and how many are read in which way of `READ_AS`."""
    problems, ways = list[Problem](), Counter[str]()
    with ThreadPoolExecutor(max_workers=workers, thread_name_prefix="check") as pool:
        for number, (fault, ways_of_file) in enumerate(pool.map(_look, files), 1):
            if fault:
                problems.append(Problem(str(files[number - 1]), f"the image cannot be read: {fault}", remedy(fault)))
            ways.update(ways_of_file)
            if number % STEP == 0 or number == len(files):
                progress("decoding images", number, len(files))
    return problems, ways


def _look(file: Path) -> tuple[str, tuple[str, ...]]:
    """Why this file is no image, empty for a good image; and how it is read."""
    try:
        with Image.open(file) as image:
            image.load()
            return "", ways_of(image)
    except Exception as error:  # decoders raise many kinds on a torn file, and every kind is a fault of the file
        return str(error).replace(f" {str(file)!r}", "") or type(error).__name__, ()


def _features(folder: Path, test_splits: list[str], progress: CheckProgress) -> Part:
    """All three splits of the features in a folder; the whole files are read, however large they are."""
    part = Part(FEATURES, folder)
    shapes: dict[str, str] = {}
    keys: dict[str, list[str]] = {}
    for split, file in precomp.splits(folder, test_splits).items():
        array, captions, ids = precomp.read(folder, file, part.problems)
        part.files += precomp.files(folder, file)
        part.problems += faults_of_captions(captions, str(folder / f"{file}_caps.txt"))
        keys[split] = ids
        images = len(ids) if len(ids) < len(captions) else len(set(ids))  # as far as ids tell
        if array is not None:
            shapes[split] = " x ".join(map(str, array.shape[1:]))
            part.notes[split] = f"{shapes[split]} {array.dtype}"
            part.problems += _values(array, folder / f"{file}_ims.npy", progress)
            if listing := precomp.align(array, captions, ids, folder / file, part.problems):
                images, part.sizes[split] = len(listing.images), SplitSize.of(listing)
        if ids and len(ids) != len(captions):
            part.problems += faults_of_ids(ids, len(captions), images, f"{folder / file}_ids.txt")
    if len(set(shapes.values())) > 1:
        differ = ", ".join(f"{split} {shape}" for split, shape in shapes.items())
        what = f"features of one image differ in shape between splits: {differ}"
        fix = "All splits must come from one extractor; take them from one package."
        part.problems.append(Problem(str(folder), what, fix))
    part.problems += precomp.overlapping(keys, folder)
    return part


def _values(array: np.ndarray, path: Path, progress: CheckProgress) -> list[Problem]:
    """NaN, infinity, and rows of zeros, anywhere in the file."""
    rows: dict[str, list[int]] = {"NaN or infinity": [], "zeros only": []}
    for start, block in precomp.blocks(array):
        rows["NaN or infinity"] += (start + np.flatnonzero(precomp.unfit(block))).tolist()
        rows["zeros only"] += (start + np.flatnonzero(~block.reshape(len(block), -1).any(axis=1))).tolist()
        progress(f"reading {path.name}", start + len(block), len(array))
    return [
        Problem(
            str(path),
            f"row{'s' * (len(bad) > 1)} {shortened(bad)} hold{'s' * (len(bad) == 1)} {what}",
            "Extract the features of these images anew.",
        )
        for what, bad in rows.items()
        if bad
    ]


def _fingerprint(part: Part, name: str, root: Path) -> None:
    """The fingerprint that records keep; data that its reader refuses are a problem too."""
    features = part.format in (FEATURES, *(form.title for form in forms()))
    try:
        part.fingerprint = content(name, root, features=features).fingerprint
    except DataError as error:
        part.problems.append(Problem(str(part.path), str(error), "Training would stop there too."))


def _nothing(name: str, root: Path) -> Problem:
    further = {form.noun: form.expected for form in forms()}
    every = [annotations.EXPECTED, "train_ims.npy with train_caps.txt (features)", *further.values()]
    expected = further.get(catalog.described(name).noun, f"one of: {'; '.join(every)}")
    hint = f" {name}" if name in catalog.names("datasets") else ""
    return Problem(
        str(root), f"no data in a known form; expected {expected}", f"How it must look: goalgrid data where{hint}."
    )
