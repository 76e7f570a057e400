"""X-VLM's JSON lists, NAME_{train,val,test}.json; ALBEF and BLIP have the same: [{"image", "caption", "image_id"?}].

A caption is a text, as in training, or a list of texts, as in validation and test. Entries of the same image are one.
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
    or in DIR/annotations/ or DIR/data/finetune/; image_id and other fields are left out
DIR/images/*.jpg            or in DIR, or in any other folder below it
"""


def find(name: str, root: Path) -> Path | None:
    """Return the test list of the data set, else of any name; the lists of the other splits are next to it."""
    folders = [root / folder for folder in FOLDERS]
    named = [folder / f"{name}_test.json" for folder in folders]
    others = [path for folder in folders for path in sorted(folder.glob("*_test.json"))]
    return next((path for path in [*named, *others] if _is_list(path)), None)


def lacks_test(root: Path) -> Problem | None:
    """Report lists of training or validation without one of the test; None: nothing to report."""
    lists = [
        path for folder in FOLDERS for split in ("train", "val") for path in (root / folder).glob(f"*_{split}.json")
    ]
    if not (here := next(filter(_is_list, sorted(lists)), None)):
        return None
    stem, _, _ = here.stem.rpartition("_")
    fix = f"Give each split its list, {stem}_train.json, {stem}_val.json and {stem}_test.json: {LAYOUT}."
    return Problem(str(here.with_name(f"{stem}_test.json")), f"is missing; {here.name} alone is not enough", fix)


def entries(path: Path, root: Path, test_splits: Sequence[str], problems: list[Problem]) -> list[Annotation]:
    """Read every image that the lists name, with its captions, both in the order of the lists."""
    annotations = []
    for split in SPLITS:
        file = path.with_name(f"{path.stem.removesuffix('_test')}_{split}.json")
        items = json_of(file, list, LAYOUT, problems)
        pairs = [pair for row, item in enumerate(items) for pair in _pairs(item, file, row, problems)]
        annotations += entries_of(split, pairs, file)
    return annotations


def _is_list(path: Path) -> bool:
    """Whether a file begins as a JSON list does: COCO's caption files of these names are objects."""
    if not path.is_file():
        return False
    with path.open("rb") as file:
        return file.read(64).lstrip().startswith(b"[")


def _pairs(item: Any, path: Path, row: int, problems: list[Problem]) -> list[tuple[str, str]]:
    """The captions of an item, each with its image; none, and reported, where it is of another layout."""
    image, value = (item.get("image"), item.get("caption")) if isinstance(item, dict) else (None, None)
    given = value if isinstance(value, list) else [value]
    captions = [caption for caption in given if isinstance(caption, str)]
    if isinstance(image, str) and image and captions and len(captions) == len(given):
        return [(image, caption) for caption in captions]
    what = "names no image" if not isinstance(image, str) or not image else f"image {image!r} has no caption"
    if (wrong := next((n for n, caption in enumerate(given) if not isinstance(caption, str)), None)) and captions:
        what = f"image {image!r}: its caption[{wrong}] is not text"
    problems.append(Problem(f"{path}: item {row}", what, f"Expected {LAYOUT}."))
    return []
