"""A CSV file of any name and with any names of columns; commas, semicolons, tabs or bars between them.

Kaggle's Flickr30K, results.csv, has bars and blanks between its columns, and lacks a bar in one of its rows.
"""

import csv
import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from goalgrid.grid.columns import Columns
from goalgrid.retrieval.data.annotations import split_files, tables
from goalgrid.retrieval.data.annotations.tables import Row, Table, TableFormat
from goalgrid.retrieval.splits.problems import Problem, cells_of

PLAIN = ("captions.csv", "captions.txt")
"""Tables that `csv_captions` reads if they have its columns; the second is Kaggle's Flickr8k."""
PATTERNS = ("*.csv", "*.tsv", "captions.txt")
FOLDERS = (".", "annotations")
SEPARATORS = ",;\t|"
LONGEST = 10_000
"""Characters of a first line that are looked at for columns."""
TREE = """
DIR/pairs.csv               any name, any columns, e.g. filepath,title; commas, semicolons, tabs or bars between them
    or NAME_train.csv, NAME_val.csv and NAME_test.csv; a column `split`, or files that say it, as for captions.csv
DIR/images/*.jpg            or in DIR, or in any other folder below it
"""
LACKS_BAR = re.compile(r"\s*(\d+)\s+(.*)", re.DOTALL)
"""The number of a comment, and the comment."""


def here(root: Path, given: Columns = ()) -> list[Path]:
    """List all tables but those of splits; those of `csv_captions` if columns are named."""
    paths = [path for folder in FOLDERS for pattern in PATTERNS for path in sorted((root / folder).glob(pattern))]
    return [path for path in paths if path.name != split_files.TABLE and (given or not is_plain(path))]


def is_plain(path: Path) -> bool:
    """Return whether `csv_captions` reads a table, by its name and its columns."""
    return path.name in PLAIN and {"image", "caption"} <= {*_cells(_first_line(path) or "")}


def header(path: Path) -> list[str] | None:
    """Return the columns of a file; None: it cannot be read, or is UTF-16."""
    line = _first_line(path)
    if line is None or "\0" in line:
        return None
    return _cells(line, **dialect(path))


def _cells(line: str, **dialect: Any) -> list[str]:
    return [name.strip() for name in next(csv.reader([line], **dialect), [])]


def dialect(path: Path) -> dict[str, Any]:
    """Tell how cells are separated: by the mark that is most frequent in the first line."""
    mark = max(SEPARATORS, key=(_first_line(path) or "").count)
    bars = {"quoting": csv.QUOTE_NONE} if mark == "|" else {}
    return {"delimiter": mark, "skipinitialspace": True, **bars}


def _first_line(path: Path) -> str | None:
    try:
        status = path.stat()
        return _read_line(path, (status.st_size, status.st_mtime_ns))
    except OSError:
        return None


@lru_cache(maxsize=64)
def _read_line(path: Path, stamp: tuple[int, int]) -> str:
    with path.open(encoding="utf-8-sig", errors="replace", newline="") as lines:
        return lines.readline(LONGEST)


def table(paths: Sequence[Path], root: Path, given: Columns, copies: Path | None, problems: list[Problem]) -> Table:
    """Read the rows of all files."""
    return Table(header(paths[0]) or (), _rows(paths, root, problems))


def _rows(paths: Sequence[Path], root: Path, problems: list[Problem]) -> Iterator[Row]:
    for path in paths:
        how, split, faults = dialect(path), tables.split_in(path, root) if len(paths) > 1 else "", list[Problem]()
        columns, rows = cells_of(path, faults, **how)
        if how["delimiter"] == "|":
            faults = [fault for fault in faults if not _mends(fault, path, columns or [], rows)]
        problems += faults
        for line, cells in sorted(rows):
            yield Row(f"{path}, line {line}", dict(zip(columns or [], map(str.rstrip, cells), strict=True)), split)


def _mends(fault: Problem, path: Path, columns: Sequence[str], rows: list[tuple[int, list[str]]]) -> bool:
    """Add the row of a fault in which number and comment have no bar between them; return whether it is one."""
    number = fault.place.rpartition(" ")[2]
    if len(columns) != 3 or not number.isdigit() or not fault.what.startswith("has 2 cells"):
        return False
    with path.open(encoding="utf-8-sig", errors="replace") as lines:
        line = next(line for at, line in enumerate(lines, 1) if at == int(number))
    image, _, rest = line.partition("|")
    if match := LACKS_BAR.fullmatch(rest.rstrip("\r\n")):
        rows.append((int(number), [image, *match.groups()]))
    return match is not None


FORMAT = TableFormat(here, header, table, "table", TREE)
