"""Hugging Face's imagefolder format: images with metadata.csv or metadata.jsonl next to them, keyed by `file_name`.

The metadata may be in the root or in one folder per split; file names are relative to the folder of the metadata.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path

from goalgrid.grid.columns import Columns
from goalgrid.retrieval.data.annotations import csv_table, json_lines, tables
from goalgrid.retrieval.data.annotations.tables import Row, Table, TableFormat
from goalgrid.retrieval.splits.problems import Problem, cells_of

NAMES = ("metadata.csv", "metadata.jsonl")
FOLDERS = ("", "*/", "*/*/")
TREE = """
DIR/train/metadata.csv      columns file_name and e.g. text; or metadata.jsonl
DIR/train/*.jpg             likewise DIR/validation/ and DIR/test/; or all in one folder, with a column `split`
"""


def here(root: Path, given: Columns = ()) -> list[Path]:
    """List the metadata files of the root or, if there are none, of its subfolders."""
    levels = ([path for name in NAMES for path in root.glob(f"{folder}{name}")] for folder in FOLDERS)
    return sorted(next(filter(None, levels), []))


def header(path: Path) -> list[str] | None:
    return json_lines.header(path) if path.suffix == ".jsonl" else csv_table.header(path)


def table(paths: Sequence[Path], root: Path, given: Columns, copies: Path | None, problems: list[Problem]) -> Table:
    """Read the rows of all metadata files as one table."""
    return Table(header(paths[0]) or (), _rows(paths, root, problems))


def _rows(paths: Sequence[Path], root: Path, problems: list[Problem]) -> Iterator[Row]:
    for path in paths:
        folder = path.parent.relative_to(root)
        split, below = tables.split_in(folder / "metadata", Path()), "" if folder == Path() else str(folder)
        if path.suffix == ".jsonl":
            rows = list(json_lines.objects(path, problems))
        else:
            columns, cells = cells_of(path, problems, **csv_table.dialect(path))
            rows = [(line, dict(zip(columns or [], values, strict=True))) for line, values in cells]
        for line, values in rows:
            yield Row(f"{path}, line {line}", values, split, folder=below)


FORMAT = TableFormat(here, header, table, "metadata file", TREE, shards=True)
