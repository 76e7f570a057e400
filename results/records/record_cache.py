"""Cache the record columns that tables need, so that only new records are opened.

A mark ties a summary to its record: trial, inode, size, and the times of the last writing and of the last change, which
no program can set back. The copy is never the truth: if it is damaged or of another schema, it is made again.
"""

from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa

from goalgrid.grid.errors import UserError
from goalgrid.grid.store.home import Home
from goalgrid.results.records import checksummed, record

FEW = 500
"""Records that are read in less than a second. Fewer are read without the copy; fewer new ones are not copied yet."""
MARK = "mark"

_SCHEMA = pa.schema([pa.field(MARK, pa.string()), *(record.SCHEMA.field(name) for name in record.SHORT)])


def read(
    home: Home, paths: Sequence[Path], columns: list[str], unreadable: record.Unreadable | None = None
) -> pa.Table:
    """Read the same table as `record.collect` of these paths and columns, some of `record.SHORT`, sooner."""
    if len(paths) < FEW:
        return record.collect(paths, columns, unreadable)
    marked = {_mark(path): path for path in paths}
    cached = _cached(home.summaries)
    known = set(cached[MARK].to_pylist())
    new = {mark: path for mark, path in marked.items() if mark not in known}
    # The marks are older than what is read now. The new content of a record that is replaced in between is stored under
    # its old mark, which nobody asks for again.
    read_now = record.collect(list(new.values()), record.SHORT, unreadable)
    marks = [mark for mark, path in new.items() if path not in (unreadable or ())]
    summaries = pa.concat_tables([cached, read_now.add_column(0, _SCHEMA.field(MARK), pa.array(marks, pa.string()))])
    if len(new) >= FEW:
        _write(home, summaries)
    rows = {mark: row for row, mark in enumerate(summaries[MARK].to_pylist())}
    places = pa.array([rows[mark] for mark in marked if mark in rows], pa.int64())  # an empty list would have no type
    return summaries.select(columns).take(places)


def rows(
    home: Home, done: Iterable[str], columns: Iterable[str], unreadable: record.Unreadable | None = None
) -> dict[str, dict[str, Any]]:
    """Read columns of the records of finished trials, by id; `unreadable` as of `record.collect`."""
    table = read(home, [home.trial(trial_id).record for trial_id in done], ["trial_id", *columns], unreadable)
    return {row["trial_id"]: row for row in table.to_pylist()}


class Copying(ThreadPoolExecutor):
    """Copies records in a thread as they are written, so that the first table after a long grid opens few of them.

    Each copy rewrites all summaries. It is made when a twentieth more are waiting, so that all copies together take
    time in proportion to the records.
    """

    def __init__(self, home: Home) -> None:
        super().__init__(1)
        self._home, self._waiting, self._enough = home, list[Path](), FEW

    def note(self, record: Path) -> None:
        """Copy this record, now or with those that follow."""
        self._waiting.append(record)
        if len(self._waiting) >= self._enough:
            self.submit(self._copy, self._waiting)
            self._waiting = []

    def _copy(self, paths: Sequence[Path]) -> None:
        read(self._home, paths, [MARK], unreadable={})
        self._enough = max(FEW, _cached(self._home.summaries).num_rows // 20)


def _mark(path: Path) -> str:
    """The mark of the record at this path as it is now; without a record, a mark that nobody knows."""
    try:
        now = path.stat()
    except OSError:
        return str(path)
    return f"{path.parent.name}/{now.st_ino}/{now.st_size}/{now.st_mtime_ns}/{now.st_ctime_ns}"


def _cached(path: Path) -> pa.Table:
    """The summaries that earlier readers wrote; none if the file is damaged or of another schema."""
    with suppress(OSError, checksummed.Damaged):
        cached = checksummed.read(path)
        if cached.schema.equals(_SCHEMA):
            return cached
    return pa.Table.from_batches([], _SCHEMA)


def _write(home: Home, summaries: pa.Table) -> None:
    """Write the latest summary of every trial whose folder exists; without it, the next reader starts from scratch."""
    present = home.standing()
    latest = {mark.partition("/")[0]: row for row, mark in enumerate(summaries[MARK].to_pylist())}
    table = summaries.take(pa.array([row for trial_id, row in latest.items() if trial_id in present], pa.int64()))
    with suppress(UserError):
        checksummed.write(home.summaries, table, compression="zstd")
