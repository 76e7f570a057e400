"""Parquet files, from Hugging Face or elsewhere: images as bytes or as paths, with their captions.

Captions are strings, lists of strings, or several columns. Image bytes are copied once (`picture_copies`).
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from goalgrid.grid.columns import Columns
from goalgrid.retrieval.data.annotations import tables
from goalgrid.retrieval.data.annotations.tables import Row, Table, TableFormat
from goalgrid.retrieval.data.file_slice import FileSlice
from goalgrid.retrieval.data.picture_copies import PictureCopy, copied
from goalgrid.retrieval.splits.problems import Problem, torn

if TYPE_CHECKING:
    from pyarrow import Schema

FOLDERS = ("", "data/", "*/", "*/*/")
ROWS = 64
"""Rows read at a time."""
FURTHER = ("key", "status")
"""Columns of img2dataset that tell which downloads failed."""
TREE = """
DIR/*.parquet               columns image (bytes, as in Hugging Face data sets, or a path) and caption or captions
    or in DIR/data/, or in one folder per split; named after splits (train-00000-of-00002.parquet), or column `split`
"""


def here(root: Path, given: Columns = ()) -> list[Path]:
    """List the parquet files of the first folder that has any."""
    return next(filter(None, (sorted(root.glob(f"{folder}*.parquet")) for folder in FOLDERS)), [])


def header(path: Path) -> list[str] | None:
    """Return the column names, plus `image` if any column contains image bytes; None if the file is unreadable."""
    try:
        schema = _schema(path)
    except (OSError, ValueError):  # pyarrow's errors are ValueErrors
        return None
    return [*schema.names, *(["image"] if _embedded(schema) and "image" not in schema.names else [])]


def table(paths: Sequence[Path], root: Path, given: Columns, copies: Path | None, problems: list[Problem]) -> Table:
    """Read the rows of all files as one table; embedded images are read from their copy."""
    schemas: dict[Path, Schema] = {}
    for path in paths:
        try:
            schemas[path] = _schema(path)
        except (OSError, ValueError) as error:
            problems.append(torn(path, error))
    if len(schemas) < len(paths):
        return Table((), ())
    first, column = schemas[paths[0]], _image_column(schemas[paths[0]], given)
    names = [*first.names, *(["image"] if column and "image" not in first.names else [])]
    columns, faults = tables.resolved(names, given, "", image=column is None)
    lacking = [path for path in paths if not {*first.names} <= {*schemas[path].names}]
    if lacking:
        missing = sorted({*first.names} - {*schemas[lacking[0]].names})
        what = f"lacks columns that {paths[0].name} has: {', '.join(missing)}"
        problems.append(Problem(str(lacking[0]), what, "All files of a table need the same columns."))
    if faults or lacking:
        return Table(() if lacking else names, (), own_images=column is not None)
    names_read = [*(name for _, of_role in columns for name in of_role), *FURTHER]
    read = [name for name in names_read if name != column and name in first.names]
    copy = None
    if column and copies:
        try:
            pictures = (picture for path in paths for picture in _pictures(path, column))
            copy = copied(paths, root, column, copies, pictures, sum(_size(path, column) for path in paths))
        except ValueError as error:
            problems.append(torn(paths[0].parent, error))
            return Table((), ())
    notes = [f"pictures copied to {copy.path} ({copy.bytes / 1e6:,.1f} MB)"] if copy else []
    return Table(names, _rows(paths, root, column, read, copy, problems), own_images=column is not None, notes=notes)


def _schema(path: Path) -> "Schema":
    import pyarrow.parquet as pq

    return pq.read_schema(path)


def _embedded(schema: "Schema") -> list[str]:
    """Return the columns that contain images: bytes, or structs of bytes and path as in Hugging Face data sets."""
    import pyarrow.types as kinds

    def holds(kind: Any) -> bool:
        if kinds.is_struct(kind):
            return any(kind.field(place).name == "bytes" for place in range(kind.num_fields))
        return bool(kinds.is_binary(kind) or kinds.is_large_binary(kind))

    return [field.name for field in schema if holds(field.type)]


def _image_column(schema: "Schema", given: Columns) -> str | None:
    """Return the column with image bytes: the user's choice, `image`, or the only one; None if images are paths."""
    embedded = _embedded(schema)
    if named := dict(given).get("image"):
        return named[0] if named[0] in embedded else None
    usual = [name for name in embedded if name in tables.candidates("image", embedded)]
    return next(iter([*usual, *embedded]), None) if usual or len(embedded) == 1 else None


def _size(path: Path, column: str) -> int:
    """Return the approximate size of an image column, in bytes."""
    import pyarrow.parquet as pq

    meta = pq.read_metadata(path)
    groups = (meta.row_group(place) for place in range(meta.num_row_groups))
    chunks = (group.column(place) for group in groups for place in range(group.num_columns))
    return sum(chunk.total_uncompressed_size for chunk in chunks if chunk.path_in_schema.split(".")[0] == column)


def _batches(path: Path, columns: Sequence[str]) -> Iterator[list[dict[str, Any]]]:
    import pyarrow.parquet as pq

    with pq.ParquetFile(path) as file:
        for batch in file.iter_batches(ROWS, columns=list(columns)):
            yield batch.to_pylist()


def _pictures(path: Path, column: str) -> Iterator[bytes | None]:
    for rows in _batches(path, [column]):
        for row in rows:
            yield _bytes(row[column])


def _bytes(value: Any) -> bytes | None:
    return value.get("bytes") if isinstance(value, Mapping) else value


def _rows(
    paths: Sequence[Path],
    root: Path,
    column: str | None,
    columns: Sequence[str],
    copy: PictureCopy | None,
    problems: list[Problem],
) -> Iterator[Row]:
    place = 0
    for path in paths:
        split, first = tables.split_in(path, root), place
        named = [f"{column}.path"] if column and _has_path(_schema(path), column) else []
        try:
            for rows in _batches(path, [*columns, *named]):
                for values in rows:
                    name = (values.get(column) or {}).get("path") or "" if named and column else ""
                    where = f"{path}, row {place - first + 1}"
                    image = None
                    if copy and place < len(copy.rows):
                        image = copy.picture(place, name)
                    elif column:
                        image = FileSlice(path, 0, 0, name or where)
                    texts = {key: _decoded(value, where, problems) for key, value in values.items() if key != column}
                    if image is None and name:
                        texts["image"] = name
                    yield Row(where, texts, split, image)
                    place += 1
        except (OSError, ValueError) as error:
            problems.append(torn(path, error))


def _has_path(schema: "Schema", column: str) -> bool:
    kind = schema.field(column).type
    with suppress(AttributeError):
        return any(kind.field(place).name == "path" for place in range(kind.num_fields))
    return False


def _decoded(value: Any, place: str, problems: list[Problem]) -> Any:
    """Decode bytes to text; report bytes that are not UTF-8, and return None for them."""
    if isinstance(value, list):
        return [_decoded(item, place, problems) for item in value]
    if not isinstance(value, bytes):
        return value
    try:
        return value.decode()
    except UnicodeDecodeError as error:
        what = f"is not UTF-8: byte {value[error.start]:#04x} in {value[:40]!r}"
        problems.append(Problem(place, what, "Store captions as UTF-8 text."))
        return None


FORMAT = TableFormat(here, header, table, "parquet file", TREE, shards=True)
