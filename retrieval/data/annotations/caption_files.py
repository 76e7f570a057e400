"""Images with caption files next to them: x.jpg with x.txt (one caption per line) or x.json, as img2dataset writes.

The images are in one folder, in one folder per split, or in img2dataset's shard folders (00000/).
"""

import os
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from goalgrid.grid.columns import Columns
from goalgrid.retrieval.data.annotations import tables
from goalgrid.retrieval.data.annotations.annotation import ENDINGS
from goalgrid.retrieval.data.annotations.tables import Row, Table, TableFormat
from goalgrid.retrieval.splits.problems import Problem, json_of, lines_of

PICTURES = (*ENDINGS, ".webp")
LOOKED_AT = 1000
"""Maximum number of files of a folder that are examined to find an image with captions."""
TREE = """
DIR/images/x.jpg            with x.txt (one caption per line), or x.json with "caption" or "captions"
    or in DIR, or in DIR/train/, DIR/val/ and DIR/test/, or in img2dataset's shard folders (00000/)
"""


def here(root: Path, given: Columns = ()) -> list[Path]:
    """List the folders that contain images with caption files next to them."""
    if not root.is_dir():
        return []
    with os.scandir(root) as items:
        below = sorted(path for item in items if (path := root / item.name).is_dir())  # of a link to itself, too
    folders = [root, *(root / "images" / name for name in ("", "train", "val", "test")), *below]
    return [folder for folder in dict.fromkeys(folders) if folder.is_dir() and _captioned(folder)]


def _captioned(folder: Path) -> bool:
    some = islice(folder.iterdir(), LOOKED_AT)
    return any(path.suffix in PICTURES and captions_beside(path) for path in some)


def captions_beside(picture: Path) -> Path | None:
    """Return the caption file of an image, preferring .txt to .json; None if there is none."""
    return next((path for ending in (".txt", ".json") if (path := picture.with_suffix(ending)).is_file()), None)


def header(path: Path) -> Sequence[str]:
    """Return the column names of a folder viewed as a table."""
    return "image", "captions"


def table(paths: Sequence[Path], root: Path, given: Columns, copies: Path | None, problems: list[Problem]) -> Table:
    """Read all images of the folders, sorted by name, as rows of a table."""
    return Table(header(root), _rows(paths, root, problems))


def _rows(paths: Sequence[Path], root: Path, problems: list[Problem]) -> Iterator[Row]:
    for folder in paths:
        split = tables.split_in(folder / "x", root)
        for picture in sorted(path for path in folder.iterdir() if path.suffix in PICTURES):
            name = str(picture.relative_to(root))
            yield Row(str(picture), {"image": name, "captions": _captions(picture, problems)}, split)


def _captions(picture: Path, problems: list[Problem]) -> Any:
    path = captions_beside(picture)
    if path is None:
        return None
    if path.suffix == ".txt":
        return lines_of(path, "one caption per line", problems)
    content = json_of(path, dict, '{"caption": "a dog"}', problems)
    return next((content[name] for name in tables.candidates("captions", [*content])), None)


FORMAT = TableFormat(here, header, table, "folder", TREE, shards=True)
