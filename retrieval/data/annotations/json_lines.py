"""JSON lines, *.jsonl: one object per line, for an image or a caption, with any key names."""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from goalgrid.grid.columns import Columns
from goalgrid.grid.errors import parsed_json
from goalgrid.retrieval.data.annotations import tables
from goalgrid.retrieval.data.annotations.tables import Row, Table, TableFormat
from goalgrid.retrieval.splits.problems import Problem, lines_of

FOLDERS = (".", "annotations", "data")
PATTERNS = ("*.jsonl", "*.ndjson")
LAYOUT = 'one object per line, e.g. {"image": "1.jpg", "captions": ["a dog", "a dog runs"], "split": "train"}'
TREE = """
DIR/captions.jsonl          lines like {"image": "1.jpg", "captions": ["a dog", "a dog runs"], "split": "train"}
    any name, any keys; or NAME_train.jsonl, NAME_val.jsonl and NAME_test.jsonl
DIR/images/*.jpg            or in DIR, or in any other folder below it
"""
FIRST = 1 << 20
"""Maximum number of bytes of the first line that are read."""


def here(root: Path, given: Columns = ()) -> list[Path]:
    """List all JSON lines files."""
    return [path for folder in FOLDERS for pattern in PATTERNS for path in sorted((root / folder).glob(pattern))]


def header(path: Path) -> list[str] | None:
    """Return the keys of the first line's object; None if the line is unreadable or not an object."""
    try:
        with path.open("rb") as lines:
            first = parsed_json(lines.readline(FIRST))
    except (OSError, ValueError):
        return None
    return [str(key) for key in first] if isinstance(first, dict) else None


def table(paths: Sequence[Path], root: Path, given: Columns, copies: Path | None, problems: list[Problem]) -> Table:
    """Read the lines of all files as one table."""
    return Table(header(paths[0]) or (), _rows(paths, root, problems))


def _rows(paths: Sequence[Path], root: Path, problems: list[Problem]) -> Iterator[Row]:
    for path in paths:
        split = tables.split_in(path, root) if len(paths) > 1 else ""
        for number, values in objects(path, problems):
            yield Row(f"{path}, line {number}", values, split)


def objects(path: Path, problems: list[Problem]) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield the objects of a file with their line numbers; report lines that are not objects."""
    for number, line in enumerate(lines_of(path, "one object per line", problems), 1):
        if not line.strip():
            continue
        try:
            values = parsed_json(line)
        except json.JSONDecodeError as error:
            what = f"is not valid JSON: {error.msg}, at character {error.colno} of {len(line)}"
            problems.append(Problem(f"{path}, line {number}", what, f"Is the file complete? Expected {LAYOUT}."))
            continue
        if isinstance(values, dict):
            yield number, values
        else:
            problems.append(Problem(f"{path}, line {number}", "is not a JSON object", f"Expected {LAYOUT}."))


FORMAT = TableFormat(here, header, table, "JSON lines file", TREE)
