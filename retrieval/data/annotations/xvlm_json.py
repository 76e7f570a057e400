"""X-VLM's JSON lists, NAME_{train,val,test}.json, also used by ALBEF and BLIP: [{"image", "caption", "image_id"?}].

A caption is a string (in their training lists) or a list of strings (in validation and test). Entries of the same image
are merged.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from goalgrid.retrieval.data.annotations.annotation import SPLITS, Annotation, entries_of
from goalgrid.retrieval.splits.problems import Problem, json_of

FOLDERS = (".", "annotations", "finetune", "data", "data/finetune")
LAYOUT = '[{"image": "dog.jpg", "caption": "a dog" or ["a dog", "a dog runs"]}, ...]'
TREE = """
DIR/NAME_{train,val,test}.json    [{"image": "1.jpg", "caption": "a dog"}, ...], or ["a dog", "a dog runs"]
    or in DIR/annotations/ or DIR/data/finetune/; image_id and other fields are ignored
DIR/images/*.jpg            or in DIR, or in any other folder below it
"""


def find(name: str, root: Path) -> Path | None:
    """Return the data set's test list, or, if there is none, a test list with any name.

    The lists of the other splits are next to it.
    """
    folders = [root / folder for folder in FOLDERS]
    named = [folder / f"{name}_test.json" for folder in folders]
    others = [path for folder in folders for path in sorted(folder.glob("*_test.json"))]
    return next((path for path in [*named, *others] if _is_list(path)), None)


def lacks_test(root: Path) -> Problem | None:
    """Report that there are training or validation lists but no test list; return None if not so."""
    lists = [
        path for folder in FOLDERS for split in ("train", "val") for path in (root / folder).glob(f"*_{split}.json")
    ]
    if not (here := next(filter(_is_list, sorted(lists)), None)):
        return None
    stem, _, _ = here.stem.rpartition("_")
    fix = f"Provide one list per split, {stem}_train.json, {stem}_val.json and {stem}_test.json: {LAYOUT}."
    return Problem(str(here.with_name(f"{stem}_test.json")), f"is missing; {here.name} alone is not enough", fix)


def entries(path: Path, root: Path, test_splits: Sequence[str], problems: list[Problem]) -> list[Annotation]:
    """Read all listed images with their captions, both in list order."""
    annotations = []
    for split in SPLITS:
        file = path.with_name(f"{path.stem.removesuffix('_test')}_{split}.json")
        items = json_of(file, list, LAYOUT, problems)
        pairs = [pair for row, item in enumerate(items) for pair in _pairs(item, file, row, problems)]
        annotations += entries_of(split, pairs, file)
    return annotations


def _is_list(path: Path) -> bool:
    """Return whether a file begins like a JSON list; COCO caption files with such names contain objects instead."""
    if not path.is_file():
        return False
    with path.open("rb") as file:
        return file.read(64).lstrip().startswith(b"[")


def _pairs(item: Any, path: Path, row: int, problems: list[Problem]) -> list[tuple[str, str]]:
    """Return the (image, caption) pairs of an item; if its layout is wrong, report that and return none."""
    image, value = (item.get("image"), item.get("caption")) if isinstance(item, dict) else (None, None)
    given = value if isinstance(value, list) else [value]
    captions = [caption for caption in given if isinstance(caption, str)]
    if isinstance(image, str) and image and captions and len(captions) == len(given):
        return [(image, caption) for caption in captions]
    what = "names no image" if not isinstance(image, str) or not image else f"image {image!r} has no caption"
    if (wrong := next((n for n, caption in enumerate(given) if not isinstance(caption, str)), None)) and captions:
        what = f"image {image!r}: caption[{wrong}] is not text"
    problems.append(Problem(f"{path}: item {row}", what, f"Expected {LAYOUT}."))
    return []
