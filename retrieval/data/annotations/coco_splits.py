"""COCO's layout for data of one's own, without id files: captions_{train,val,test}*.json, a file for each split.

`dev` is read as `val`, and a split may have several files. Images lie in a folder named after their file's ending
(`train2017/`), or anywhere that `locate` looks.
"""

from collections.abc import Sequence
from pathlib import Path

from goalgrid.retrieval.data.annotations.annotation import Annotation, grouped
from goalgrid.retrieval.data.annotations.coco_captions import captions_of
from goalgrid.retrieval.splits.problems import Problem

TREE = """
DIR/captions_{train,val,test}.json    {"images": [{"id", "file_name"}], "annotations": [{"id", "image_id", "caption"}]}
    or in DIR/annotations/; no coco_*_ids.npy
DIR/images/*.jpg            or in DIR, or in any other folder below it
"""
NAMES = {"train": ("train",), "val": ("val", "dev"), "test": ("test",)}
"""By split: what the names of its caption files begin with, after `captions_`."""


def find(name: str, root: Path) -> Path | None:
    """The folder of the caption files, `annotations/` or the root, if a test split is there and no id file."""
    folders = (root / "annotations", root)
    if any(next(folder.glob("coco_*_ids.npy"), None) for folder in folders):
        return None
    return next((folder for folder in folders if _files(folder, "test")), None)


def files(path: Path, root: Path) -> list[Path]:
    """The caption files."""
    return [file for split in NAMES for file in _files(path, split)]


def entries(path: Path, root: Path, test_splits: Sequence[str], problems: list[Problem]) -> list[Annotation]:
    """Every image with captions, in the order of its first caption."""
    annotations = []
    for split, names in NAMES.items():
        files = _files(path, split)
        if not files:
            fix = "Each split has its caption file: captions_train.json, captions_val.json, captions_test.json."
            problems.append(Problem(str(path / f"captions_{names[0]}.json"), "is missing", fix))
        for file in files:
            captions = captions_of(file, problems).values()
            folder = file.stem.removeprefix("captions_")
            by_image = grouped([caption for _, caption in captions], [image for image, _ in captions])
            annotations += [
                Annotation(split, (f"{folder}/{image}", image), tuple(texts), f"{file}: image {image}")
                for image, texts in by_image.items()
            ]
    return annotations


def _files(folder: Path, split: str) -> list[Path]:
    return [file for name in NAMES[split] for file in sorted(folder.glob(f"captions_{name}*.json"))]
