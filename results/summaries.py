"""Summaries: what tables read of records, kept beside the trials, so that a large grid's table opens only new records.

A summary is known by what the file system says of the record that it was read from: its trial, inode, size, and the
times of its last writing and of its last change. A record is written aside and renamed, so another one has another
inode at once; one that is edited in place has another time of change, which no program can set back. What is kept is a
copy: where it is removed, damaged or of another schema it is made anew, and where it cannot be written only time is
lost.
"""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from grid.errors import UserError
from grid.files import written_aside
from grid.home import Home
from results import record

FEW = 500
"""Records that are read in less than a second: fewer are read as they are, and fewer new ones are not kept yet."""
LARGE = ("settings", "test_i2t_ranks", "test_t2i_ranks", "history")
"""Columns of records that summaries lack."""
COLUMNS = [name for name in record.SCHEMA.names if name not in LARGE]
MARK = "mark"
"""The column by which a summary is known."""

_SCHEMA = pa.schema([pa.field(MARK, pa.string()), *(record.SCHEMA.field(name) for name in COLUMNS)])


def read(home: Home, paths: Sequence[Path], columns: list[str]) -> pa.Table:
    """These columns of a home's records at these paths, in their order: as `record.collect`, but for the time.

    Args:
        columns: some of `COLUMNS`.

    Raises:
        UserError: a record cannot be read.
    """
    if len(paths) < FEW:
        return record.collect(paths, columns)
    wanted = {_mark(path): path for path in paths}
    kept = _kept(home.summaries)
    known = set(kept[MARK].to_pylist())
    new = {mark: path for mark, path in wanted.items() if mark not in known}
    found = pa.concat_tables([kept, _summaries(new)])
    if len(new) >= FEW:
        _keep(home, found)
    rows = {mark: row for row, mark in enumerate(found[MARK].to_pylist())}
    return found.select(columns).take([rows[mark] for mark in wanted])


def _mark(path: Path) -> str:
    """Of the record at this path as it is now.

    Raises:
        UserError: there is none.
    """
    try:
        now = path.stat()
    except OSError as error:
        raise record.unreadable(path, error) from error
    return f"{path.parent.name}/{now.st_ino}/{now.st_size}/{now.st_mtime_ns}/{now.st_ctime_ns}"


def _kept(path: Path) -> pa.Table:
    """What an earlier reader kept, if it is whole and of this schema."""
    with suppress(OSError, pa.ArrowInvalid):
        kept = pq.ParquetFile(path, page_checksum_verification=True).read()
        if kept.schema.equals(_SCHEMA):
            return kept
    return pa.Table.from_batches([], _SCHEMA)


def _summaries(new: Mapping[str, Path]) -> pa.Table:
    """Marks are taken before the records are read, so that one replaced meanwhile is never taken for the old one."""
    return record.collect(new.values(), COLUMNS).add_column(0, _SCHEMA.field(MARK), pa.array(list(new), pa.string()))


def _keep(home: Home, found: pa.Table) -> None:
    """Write the latest summary of every trial that still stands; a disk that takes nothing costs the next reader."""
    standing = home.standing()
    latest = {mark.partition("/")[0]: row for row, mark in enumerate(found[MARK].to_pylist())}
    table = found.take([row for trial_id, row in latest.items() if trial_id in standing])
    with suppress(UserError), written_aside(home.summaries) as aside:
        pq.write_table(table, aside, compression="zstd", write_page_checksum=True)
