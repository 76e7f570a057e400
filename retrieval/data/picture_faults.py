"""Faults of raw images: annotations, captions, files that are missing, unreadable, or in two splits."""

from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from PIL import Image

from retrieval.data import annotations, caption_faults
from retrieval.data.annotations.entries import Entry, owners
from retrieval.data.parts import Part, Progress, SplitSize, overlaps
from retrieval.data.problems import Problem, counted

STEP = 100
"""Images between two words of progress."""


def of_root(name: str, root: Path, found: annotations.Found, progress: Progress, *, workers: int, fast: bool) -> Part:
    """Everything that the annotations name, each image file opened: decoded whole, or with `fast` its header alone."""
    part = Part(f"raw images, {found.format.title}", found.path)
    by_split = annotations.read(found, name, root, part.problems)
    for split, entries in by_split.items():
        part.sizes[split] = SplitSize.of(owners(entries), len(entries))
        part.problems += _captions(split, entries, found.path)
    listings = annotations.listings(by_split, root, part.problems)
    part.problems += overlaps({split: _names(entries) for split, entries in by_split.items()}, str(found.path), "image")
    part.problems += _twice(by_split, found.path)
    part.files = list(dict.fromkeys(file for listing in listings.values() for file in listing.files))
    part.problems += unreadable(part.files, progress, workers=workers, fast=fast)
    return part


def unreadable(files: list[Path], progress: Progress, *, workers: int, fast: bool) -> list[Problem]:
    """Files that are no whole images, in their order."""
    problems = []
    with ThreadPoolExecutor(max_workers=workers, thread_name_prefix="check") as pool:
        for number, fault in enumerate(pool.map(_header if fast else _decoded, files), 1):
            if fault:
                what = f"the image cannot be read: {fault}"
                problems.append(Problem(str(files[number - 1]), what, "Fetch this file again."))
            if number % STEP == 0 or number == len(files):
                progress("opening images" if fast else "decoding images", number, len(files))
    return problems


def _header(file: Path) -> str:
    return _fault(file, whole=False)


def _decoded(file: Path) -> str:
    return _fault(file, whole=True)


def _fault(file: Path, *, whole: bool) -> str:
    """Why this is no image; empty for a good one."""
    try:
        with Image.open(file) as image:
            if whole:
                image.load()
    except Exception as error:  # decoders raise many kinds on a torn file, and each is a fault of the file
        return str(error).replace(f" {str(file)!r}", "") or type(error).__name__
    return ""


def _captions(split: str, entries: list[Entry], path: Path) -> list[Problem]:
    captions = [caption for entry in entries for caption in entry.captions]
    if not captions:
        return [
            Problem(f"{split} split of {path}", "is empty: 0 images", "Take the annotations from their source again.")
        ]
    return caption_faults.of_captions(captions, f"captions of the {split} split of {path}")


def _names(entries: list[Entry]) -> list[str]:
    return [entry.names[0] for entry in entries]


def _twice(by_split: dict[str, list[Entry]], path: Path) -> list[Problem]:
    """Images that one split names more than once."""
    problems = []
    for split, entries in by_split.items():
        twice = [name for name, count in Counter(_names(entries)).items() if count > 1]
        if twice:
            what = f"{counted(len(twice), 'image')} given more than once, the first is {twice[0]}"
            problems.append(
                Problem(f"{split} split of {path}", what, "Give each image one entry with all its captions.")
            )
    return problems
