"""Tars as written by webdataset and img2dataset: x.jpg with x.txt (one caption per line) or x.json; read in place.

Images are read directly from their tar, so nothing is unpacked. The members of a sample must be consecutive.
"""

import tarfile
from collections.abc import Iterator, Sequence
from itertools import groupby
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

from goalgrid.grid.columns import Columns
from goalgrid.grid.errors import LARGE, parsed_json
from goalgrid.retrieval.data.annotations import tables
from goalgrid.retrieval.data.annotations.tables import Row, Table, TableFormat
from goalgrid.retrieval.data.file_slice import FileSlice
from goalgrid.retrieval.splits.problems import Problem

PICTURES = ("jpg", "jpeg", "png", "webp")
FOLDERS = ("", "*/")
TREE = """
DIR/*.tar                   members x.jpg with x.txt (one caption per line), or x.json with "caption" or "captions"
    or in one folder per split, or named after splits (train-0000.tar); x.json may have "split"; not compressed
"""
AGAIN = "Download the tar again, or pack it again."


class Member(NamedTuple):
    """A file in a tar; `key`: its path up to the first dot of the file name, `ending`: the rest, in lower case."""

    name: str
    key: str
    ending: str
    part: FileSlice


def here(root: Path, given: Columns = ()) -> list[Path]:
    return [path for folder in FOLDERS for path in sorted(root.glob(f"{folder}*.tar"))]


def compressed(root: Path) -> Problem | None:
    """Report a compressed tar, whose members cannot be read in place; return None if there is none."""
    packed = next((path for ending in ("*.tar.gz", "*.tgz") for path in sorted(root.glob(ending))), None)
    if packed is None:
        return None
    what = "is compressed, but tars are read in place"
    return Problem(str(packed), what, f"Decompress it: gunzip {packed.name}")


def header(path: Path) -> list[str] | None:
    """Return the image and caption columns of the first sample; None if the tar is unreadable."""
    try:
        for _, sample in groupby(members(path), key=lambda member: member.key):
            files = {member.ending: member for member in sample}
            if any(ending in PICTURES for ending in files):
                return ["image", *_values(files, [])]
    except (OSError, tarfile.TarError):
        return None
    return []


def members(path: Path) -> Iterator[Member]:
    """Yield the files of a tar in order; raises OSError or TarError if it is truncated or not a tar."""
    with tarfile.open(path, "r:") as tar:
        while info := tar.next():
            tar.members = []  # type: ignore[attr-defined]  # they would add up to gigabytes
            if info.isreg() and not info.issparse():
                name = PurePosixPath(info.name)
                stem, _, ending = name.name.partition(".")
                part = FileSlice(path, info.offset_data, info.size, info.name)
                yield Member(info.name, str(name.with_name(stem)) if stem else info.name, ending.lower(), part)


def table(paths: Sequence[Path], root: Path, given: Columns, copies: Path | None, problems: list[Problem]) -> Table:
    """Read the samples of all tars as rows of one table."""
    return Table(header(paths[0]) or (), _rows(paths, root, problems), own_images=True)


def _rows(paths: Sequence[Path], root: Path, problems: list[Problem]) -> Iterator[Row]:
    for path in paths:
        split, seen = tables.split_in(path, root), set[str]()
        try:
            for key, sample in groupby(members(path), key=lambda member: member.key):
                listed = list(sample)
                files = {member.ending: member for member in listed}
                picture = next((files[ending] for ending in PICTURES if ending in files), None)
                if key in seen or len(files) < len(listed):
                    problems.append(Problem(f"{path}: {key}", "occurs twice", "Give each sample a unique name."))
                elif picture:
                    yield Row(f"{path}: {picture.name}", _values(files, problems), split, picture.part)
                elif "txt" in files:
                    problems.append(Problem(f"{path}: {files['txt'].name}", "has no image next to it", AGAIN))
                seen.add(key)
        except (OSError, tarfile.TarError) as error:
            size = f"{path.stat().st_size:,} bytes" if path.exists() else "no bytes"
            last = f" after {len(seen):,} samples" if seen else ""
            problems.append(Problem(str(path), f"cannot be read{last}; it has {size}: {error}", AGAIN))


def _values(files: dict[str, Member], problems: list[Problem]) -> dict[str, Any]:
    """Return the fields of the JSON file and the captions of the text file; the text file takes precedence."""
    values: dict[str, Any] = {}
    if "json" in files and isinstance(content := _json(files["json"], problems), dict):
        values |= content
    if "txt" in files:
        captions = tables.candidates("captions", [*values])
        values = {name: value for name, value in values.items() if name not in captions}
        values["txt"] = _text(files["txt"], problems).splitlines()
    return values


def _json(member: Member, problems: list[Problem]) -> Any:
    text = _text(member, problems)
    try:
        return parsed_json(text) if text else None
    except ValueError as error:
        problems.append(Problem(f"{member.part}", f"is not valid JSON: {error}", AGAIN))
        return None


def _text(member: Member, problems: list[Problem]) -> str:
    """Return the text of a member; if it is not UTF-8, report that and return an empty string."""
    with member.part.path.open("rb") as file:
        file.seek(member.part.offset)
        content = file.read(min(member.part.bytes, LARGE))
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        what = f"is not UTF-8: byte {content[error.start]:#04x} at position {error.start + 1}"
        problems.append(Problem(f"{member.part}", what, "Encode its text as UTF-8, and pack the tar again."))
        return ""


FORMAT = TableFormat(here, header, table, "tar", TREE, shards=True)
