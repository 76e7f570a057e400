"""Flickr's token file, *.token.txt or *.token: lines `1000.jpg#0<TAB>a caption`; `split_files` says the splits."""

from collections.abc import Sequence
from pathlib import Path

from goalgrid.retrieval.data.annotations import split_files
from goalgrid.retrieval.data.annotations.annotation import Annotation
from goalgrid.retrieval.splits.problems import Problem, lines_of

LAYOUT = "a line a caption: image file, #, number, tab, caption"
FOLDERS = (".", "annotations", "Flickr8k_text")
NAMES = ("*.token.txt", "*.token")
TREE = """
DIR/NAME.token.txt          a line a caption, as in 1000.jpg#0<TAB>a dog runs; or NAME.token
DIR/{train,val,test}.txt    the file names of each split, a name a line, with or without .jpg; or DIR/splits.csv
DIR/images/*.jpg            or in DIR, or in any other folder below it
"""


def find(name: str, root: Path) -> Path | None:
    """Return the token file; of several, as of plain and lemmatised captions, the one with the shortest name."""
    folders = [root / folder for folder in FOLDERS]
    token_files = (sorted(path for name in NAMES for path in folder.glob(name)) for folder in folders)
    return next((min(paths, key=lambda path: len(path.name)) for paths in token_files if paths), None)


def entries(path: Path, root: Path, test_splits: Sequence[str], problems: list[Problem]) -> list[Annotation]:
    """Read every image that the splits name, with its captions in their order."""
    pairs = []
    for number, line in enumerate(lines_of(path, LAYOUT, problems), 1):
        key, _, caption = line.partition("\t")
        image, _, count = key.rpartition("#")
        if image and count.isdigit() and "\t" in line:
            pairs.append((image, caption))
        elif line.strip():
            what = f"is not a caption with its image: {line[:40]!r}"
            problems.append(Problem(f"{path}, line {number}", what, f"Expected {LAYOUT}."))
    return split_files.entries(pairs, path, problems)
