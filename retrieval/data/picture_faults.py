"""Faults of raw images: annotations, captions, files that are missing, unreadable, or in two splits."""

from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

from PIL import Image

from goalgrid.grid.errors.wording import counted
from goalgrid.retrieval.data import annotations
from goalgrid.retrieval.data.annotations.annotation import Annotation, owners
from goalgrid.retrieval.data.annotations.locate import located
from goalgrid.retrieval.data.parts import CheckProgress, Part, SplitSize, overlaps
from goalgrid.retrieval.splits.problems import Problem, faults_of_captions, repeated

STEP = 100
"""Images between two reports of progress."""
TOO_LARGE = "Save it smaller: a network sees less than a megapixel of it."
"""What to do with a picture of more pixels than Pillow reads."""


def of_root(
    name: str, root: Path, source: tuple[str, Path], progress: CheckProgress, *, workers: int, fast: bool
) -> Part:
    """Everything that the annotations name, each image file opened: decoded whole, or with `fast` its header alone."""
    title, path = source
    part = Part(f"raw images, {title}", path)
    by_split = annotations.read(title, path, name, root, part.problems)
    for split, entries in by_split.items():
        part.sizes[split] = SplitSize.of(owners(entries), len(entries))
        part.problems += _captions(split, entries, path)
    everything = [entry for entries in by_split.values() for entry in entries]
    part.files = list(dict.fromkeys(file for _, file in located(everything, root, part.problems)))
    names = {split: [entry.names[0] for entry in entries] for split, entries in by_split.items()}
    part.problems += [*overlaps(names, str(path), "image"), *twice(names, path)]
    part.problems += unreadable(part.files, progress, workers=workers, fast=fast)
    return part


def unreadable(files: list[Path], progress: CheckProgress, *, workers: int, fast: bool) -> list[Problem]:
    """Files that are not whole images, in their order."""
    problems = []
    with ThreadPoolExecutor(max_workers=workers, thread_name_prefix="check") as pool:
        for number, fault in enumerate(pool.map(partial(_fault, whole=not fast), files), 1):
            if fault:
                what = f"the image cannot be read: {fault}"
                fix = TOO_LARGE if "exceeds limit" in fault else "Fetch this file again."
                problems.append(Problem(str(files[number - 1]), what, fix))
            if number % STEP == 0 or number == len(files):
                progress("opening images" if fast else "decoding images", number, len(files))
    return problems


def _fault(file: Path, *, whole: bool) -> str:
    """Why this file is no image; empty for a good image."""
    try:
        with Image.open(file) as image:
            if whole:
                image.load()
    except Exception as error:  # decoders raise many kinds on a torn file, and every kind is a fault of the file
        return str(error).replace(f" {str(file)!r}", "") or type(error).__name__
    return ""


def _captions(split: str, entries: list[Annotation], path: Path) -> list[Problem]:
    captions = [caption for entry in entries for caption in entry.captions]
    if not captions:
        fix = "Each of train, val and test needs images: look at what the annotations say of splits."
        return [Problem(f"{split} split of {path}", "is empty: 0 images", fix)]
    return faults_of_captions(captions, f"captions of the {split} split of {path}")


def twice(names: dict[str, list[str]], path: Path) -> list[Problem]:
    """Images that one split names more than once."""
    problems = []
    fix = "Give each image one entry with all its captions."
    for split, given in names.items():
        if twice := repeated(given):
            what = f"{counted(len(twice), 'image')} given more than once, the first is {twice[0]}"
            problems.append(Problem(f"{split} split of {path}", what, fix, "note"))
    return problems
