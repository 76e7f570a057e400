"""A CSV file, captions.csv, with a header line and one row per caption: image, caption and, optionally, split.

Without a `split` column, splits are read from split files (`split_files`); without these, a hash of the image's name
decides.
"""

import csv
from collections.abc import Sequence
from pathlib import Path, PurePosixPath

from goalgrid.grid.groups import grouped
from goalgrid.retrieval.data.annotations import csv_table, split_files, tables
from goalgrid.retrieval.data.annotations.annotation import SPLITS, Annotation, below, entries_of, first
from goalgrid.retrieval.splits.problems import Problem, rows_of

NAMES = csv_table.PLAIN
TREE = """
DIR/captions.csv            columns image,caption,split; split is train, val or test
    or columns image,caption, with DIR/splits.csv (image,split) or DIR/{train,val,test}.txt (one name per line)
    or columns image,caption alone: images are split by a hash of their names, about 80, 10 and 10 percent
DIR/images/*.jpg            or in DIR, or in any other folder below it
"""


def find(name: str, root: Path) -> Path | None:
    """Return the CSV file; None if there is none, or if its columns have other names and `csv_table` reads it."""
    path = first(root, csv_table.FOLDERS, *NAMES)
    if path and not csv_table.is_plain(path) and tables.files(csv_table.FORMAT, root, ()):
        return None
    return path


def find_with_splits(name: str, root: Path) -> Path | None:
    """Return the file that `find` returns if a column or split files assign its images to splits; else None."""
    path = find(name, root)
    return path if path and (split_files.given(path) or "split" in _columns(path)) else None


def entries(path: Path, root: Path, test_splits: Sequence[str], problems: list[Problem]) -> list[Annotation]:
    """Read all images with their captions, both in the order of the rows."""
    rows = rows_of(path, ("image", "caption"), problems, optional=("split",))
    for line, row in rows:
        row["image"], row["caption"] = row["image"].strip(), " ".join(row["caption"].splitlines())
        if not row["image"]:
            problems.append(Problem(f"{path}, line {line}", "names no image", "Give the image's file name."))
    pairs = [(row["image"], row["caption"]) for _, row in rows]
    if rows and "split" in rows[0][1]:
        splits = [split_files.split_of(row["split"], f"{path}, line {line}", problems) for line, row in rows]
    elif split_files.given(path):
        return split_files.entries(pairs, path, problems)
    else:
        splits = [split_files.by_hash(str(PurePosixPath(below(image, root)))) for image, _ in pairs]
    by_split = grouped((split, pair) for split, pair in zip(splits, pairs, strict=True) if pair[0])
    return [entry for split in SPLITS for entry in entries_of(split, by_split.get(split, []), path)]


def _columns(path: Path) -> list[str]:
    with path.open(encoding="utf-8-sig", errors="replace", newline="") as lines:
        return [name.strip() for name in next(csv.reader([lines.readline(csv_table.LONGEST)]), [])]
