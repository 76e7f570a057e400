"""Cache the record columns that tables need, so that only new records are opened.

Each cached row has a mark that identifies its record file: trial, inode, size, mtime and ctime (which programs cannot
set back). The cache is never authoritative: if it is damaged or has another schema, it is rebuilt.
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
"""Number of records that can be read within a second: with fewer, the cache is not used, or not yet updated."""
MARK = "mark"

_SCHEMA = pa.schema([pa.field(MARK, pa.string()), *(record.SCHEMA.field(name) for name in record.SHORT)])


def read(
    home: Home, paths: Sequence[Path], columns: list[str], unreadable: record.Unreadable | None = None
) -> pa.Table:
    """Return the same table as `record.collect`, but through the cache; `columns` must be in `record.SHORT`."""
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
    """Read columns of finished trials' records through the cache, by trial id; `unreadable` as in `record.collect`."""
    table = read(home, [home.trial(trial_id).record for trial_id in done], ["trial_id", *columns], unreadable)
    return {row["trial_id"]: row for row in table.to_pylist()}


class Copying(ThreadPoolExecutor):
    """Adds records to the cache in a thread as they are written, so that the first table after a long run is fast.

    Each update rewrites the whole cache. It waits until there are 5 % new records, so that the total time of all
    updates is linear in the number of records.
    """

    def __init__(self, home: Home) -> None:
        super().__init__(1)
        self._home, self._waiting, self._enough = home, list[Path](), FEW

    def note(self, record: Path) -> None:
        """Add this record to the cache, now or together with later ones."""
        self._waiting.append(record)
        if len(self._waiting) >= self._enough:
            self.submit(self._copy, self._waiting)
            self._waiting = []

    def _copy(self, paths: Sequence[Path]) -> None:
        read(self._home, paths, [MARK], unreadable={})
        self._enough = max(FEW, _cached(self._home.summaries).num_rows // 20)


def _mark(path: Path) -> str:
    """Return the mark of the record at this path; if there is no record, a mark that matches nothing."""
    try:
        now = path.stat()
    except OSError:
        return str(path)
    return f"{path.parent.name}/{now.st_ino}/{now.st_size}/{now.st_mtime_ns}/{now.st_ctime_ns}"


def _cached(path: Path) -> pa.Table:
    """Return the cached rows; an empty table if the file is damaged or has another schema."""
    with suppress(OSError, checksummed.Damaged):
        cached = checksummed.read(path)
        if cached.schema.equals(_SCHEMA):
            return cached
    return pa.Table.from_batches([], _SCHEMA)


def _write(home: Home, summaries: pa.Table) -> None:
    """Write the latest row of each trial whose folder exists; if that fails, the next reader starts from scratch."""
    present = home.standing()
    latest = {mark.partition("/")[0]: row for row, mark in enumerate(summaries[MARK].to_pylist())}
    table = summaries.take(pa.array([row for trial_id, row in latest.items() if trial_id in present], pa.int64()))
    with suppress(UserError):
        checksummed.write(home.summaries, table, compression="zstd")
