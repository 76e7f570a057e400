"""A CSV file, captions.csv: image, caption and, if you like, split. A row a caption, a first line with the columns.

Without a column of splits, `split_files` says them; without those, the hash of an image's name.
"""

import csv
from collections.abc import Sequence
from pathlib import Path

from goalgrid.retrieval.data.annotations import split_files
from goalgrid.retrieval.data.annotations.annotation import Annotation, grouped
from goalgrid.retrieval.splits.problems import Problem, rows_of

FILES = ("captions.csv", "captions.txt")
"""The second is the name in Kaggle's Flickr8k."""
LONGEST = 10_000
"""Characters of a first line that are looked at for columns."""
TREE = """
DIR/captions.csv            columns image,caption,split; the split is train, val or test
    or columns image,caption, and beside it DIR/splits.csv (image,split), or DIR/{train,val,test}.txt (a name a line)
    or columns image,caption alone: a hash of the image's name says the split, about 80, 10 and 10 percent
DIR/images/*.jpg            or in DIR, or in any other folder below it
"""


def find(name: str, root: Path) -> Path | None:
    """The CSV file, in the root or in `annotations/`."""
    return next(
        (path for folder in (root, root / "annotations") for file in FILES if (path := folder / file).exists()), None
    )


def find_with_splits(name: str, root: Path) -> Path | None:
    """As `find`, if a column or a file says the splits."""
    path = find(name, root)
    return path if path and (split_files.given(path, root) or "split" in _columns(path)) else None


def entries(path: Path, root: Path, test_splits: Sequence[str], problems: list[Problem]) -> list[Annotation]:
    """Every image with its captions, both in the order of the rows."""
    rows = rows_of(path, ("image", "caption"), problems, optional=("split",))
    for line, row in rows:
        if not row["image"].strip():
            problems.append(Problem(f"{path}, line {line}", "names no image", "Give the image's file name."))
    images = [row["image"].strip() for _, row in rows]
    captions = [" ".join(row["caption"].splitlines()) for _, row in rows]
    if rows and "split" in rows[0][1]:
        splits = [split_files.split_of(row["split"], f"{path}, line {line}", problems) for line, row in rows]
    elif split_files.given(path, root):
        return split_files.entries(grouped(captions, images), path, problems)
    else:
        splits = [split_files.by_hash(image) for image in images]
    annotations = []
    for split in split_files.LISTS:
        chosen = [row for row, row_split in enumerate(splits) if row_split == split and images[row]]
        by_image = grouped([captions[row] for row in chosen], [images[row] for row in chosen])
        annotations += [
            Annotation(split, (image,), tuple(texts), f"{path}: image {image}") for image, texts in by_image.items()
        ]
    return annotations


def _columns(path: Path) -> list[str]:
    with path.open(encoding="utf-8-sig", errors="replace", newline="") as lines:
        return [name.strip() for name in next(csv.reader([lines.readline(LONGEST)]), [])]
