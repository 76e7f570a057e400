"""A CSV file with any file name and any column names, separated by commas, semicolons, tabs or vertical bars.

Kaggle's Flickr30K file, results.csv, separates columns by bars and spaces, and one of its rows lacks a bar.
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
"""Files that `csv_captions` reads if they have the columns it expects; the second is Kaggle's Flickr8k file."""
PATTERNS = ("*.csv", "*.tsv", "captions.txt")
FOLDERS = (".", "annotations")
SEPARATORS = ",;\t|"
LONGEST = 10_000
"""Maximum number of characters of the header line that are read."""
TREE = """
DIR/pairs.csv               any name, any columns, e.g. filepath,title; separated by commas, semicolons, tabs or bars
    or NAME_train.csv, NAME_val.csv and NAME_test.csv; a column `split`, or split files as for captions.csv
DIR/images/*.jpg            or in DIR, or in any other folder below it
"""
LACKS_BAR = re.compile(r"\s*(\d+)\s+(.*)", re.DOTALL)
"""A comment's number and text, without a bar between them."""


def here(root: Path, given: Columns = ()) -> list[Path]:
    """List all tables except split files; tables that `csv_captions` reads are included only if `given` has columns."""
    paths = [path for folder in FOLDERS for pattern in PATTERNS for path in sorted((root / folder).glob(pattern))]
    return [path for path in paths if path.name != split_files.TABLE and (given or not is_plain(path))]


def is_plain(path: Path) -> bool:
    """Return whether a table has a file name and columns that `csv_captions` reads."""
    return path.name in PLAIN and {"image", "caption"} <= {*_cells(_first_line(path) or "")}


def header(path: Path) -> list[str] | None:
    """Return the column names of a file; None if it is unreadable or encoded as UTF-16."""
    line = _first_line(path)
    if line is None or "\0" in line:
        return None
    return _cells(line, **dialect(path))


def _cells(line: str, **dialect: Any) -> list[str]:
    return [name.strip() for name in next(csv.reader([line], **dialect), [])]


def dialect(path: Path) -> dict[str, Any]:
    """Return the CSV dialect of a file; the delimiter is the most frequent separator of its first line."""
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
    """Read the rows of all files as one table."""
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
    """Repair a row in which only the bar between number and comment is missing; return whether it could be repaired."""
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
