"""Flickr token files, *.token.txt or *.token, with lines `1000.jpg#0<TAB>a caption`; splits come from `split_files`."""

from collections.abc import Sequence
from pathlib import Path

from goalgrid.retrieval.data.annotations import split_files
from goalgrid.retrieval.data.annotations.annotation import Annotation
from goalgrid.retrieval.splits.problems import Problem, lines_of

LAYOUT = "one line per caption: image file, #, number, tab, caption"
FOLDERS = (".", "annotations", "Flickr8k_text")
NAMES = ("*.token.txt", "*.token")
TREE = """
DIR/NAME.token.txt          one line per caption, e.g. 1000.jpg#0<TAB>a dog runs; or NAME.token
DIR/{train,val,test}.txt    the file names of each split, one per line, with or without .jpg; or DIR/splits.csv
DIR/images/*.jpg            or in DIR, or in any other folder below it
"""


def find(name: str, root: Path) -> Path | None:
    """Return the token file with the shortest name (a lemmatised version has a longer name), or None."""
    folders = [root / folder for folder in FOLDERS]
    token_files = (sorted(path for name in NAMES for path in folder.glob(name)) for folder in folders)
    return next((min(paths, key=lambda path: len(path.name)) for paths in token_files if paths), None)


def entries(path: Path, root: Path, test_splits: Sequence[str], problems: list[Problem]) -> list[Annotation]:
    """Read all images listed in the split files, with their captions in file order."""
    pairs = []
    for number, line in enumerate(lines_of(path, LAYOUT, problems), 1):
        key, _, caption = line.partition("\t")
        image, _, count = key.rpartition("#")
        if image and count.isdigit() and "\t" in line:
            pairs.append((image, caption))
        elif line.strip():
            what = f"is not an image with a caption: {line[:40]!r}"
            problems.append(Problem(f"{path}, line {number}", what, f"Expected {LAYOUT}."))
    return split_files.entries(pairs, path, problems)
