"""COCO's layout for data of one's own in a single file, captions.json; `split_files` says the splits."""

from collections.abc import Sequence
from pathlib import Path

from goalgrid.retrieval.data.annotations import split_files
from goalgrid.retrieval.data.annotations.annotation import Annotation, grouped
from goalgrid.retrieval.data.annotations.coco_captions import captions_of
from goalgrid.retrieval.splits.problems import Problem

TREE = """
DIR/captions.json           {"images": [{"id", "file_name"}], "annotations": [{"id", "image_id", "caption"}]}
DIR/splits.csv              columns image,split, the image by its file_name; or DIR/{train,val,test}.txt
DIR/images/*.jpg            or in DIR, or in any other folder below it
"""


def find(name: str, root: Path) -> Path | None:
    """captions.json, in the root or in `annotations/`."""
    return next((path for folder in (root, root / "annotations") if (path := folder / "captions.json").exists()), None)


def entries(path: Path, root: Path, test_splits: Sequence[str], problems: list[Problem]) -> list[Annotation]:
    """Every image that the splits name, with its captions in their order."""
    captions = captions_of(path, problems).values()
    return split_files.entries(
        grouped([text for _, text in captions], [image for image, _ in captions]), path, problems
    )
