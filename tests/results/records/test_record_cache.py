"""Summaries of records: as collecting says, whatever became of the records, of the copy, and of the disk."""

import os
import random
import shutil
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from goalgrid.grid.errors import UserError
from goalgrid.grid.store.home import Home
from goalgrid.results.records import record, record_cache

FEW, COUNT = 20, 23
SHOWN = ["trial_id", "test_i2t_r1", "other_metrics", "seed"]


@pytest.fixture(autouse=True)
def small_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    """A few records count as many."""
    monkeypatch.setattr(record_cache, "FEW", FEW)
    monkeypatch.setattr(record, "PART", 10)


def row(trial_id: str, value: float) -> dict[str, Any]:
    """A record of few test queries."""
    texts = {field.name: "x" for field in record.SCHEMA if field.type == pa.string()}
    numbers = {field.name: value for field in record.SCHEMA if field.type == pa.float64()}
    counts = {field.name: 1 for field in record.SCHEMA if pa.types.is_integer(field.type)}
    lists = {"test_i2t_ranks": [0, 3], "test_t2i_ranks": [1], "other_metrics": [("p/i2t_r1", value)]}
    history = [{"epoch": 1, "name": "rsum", "value": value}]
    return {**texts, **numbers, **counts, **lists, "history": history, "trial_id": trial_id}


def write(path: Path, value: float) -> Path:
    """A record as a trial leaves it, without waiting for the disk."""
    path.parent.mkdir(parents=True, exist_ok=True)
    aside = path.with_name("aside")
    pq.write_table(pa.Table.from_pylist([row(path.parent.name, value)], record.SCHEMA), aside)
    aside.replace(path)
    return path


@pytest.fixture
def home(tmp_path: Path) -> Home:
    """Of as many records as summaries are kept of."""
    home = Home(tmp_path)
    for number in range(COUNT):
        write(home.trial(f"t{number}").record, float(number))
    return home


def paths_of(home: Home, count: int = COUNT) -> list[Path]:
    return [home.trial(f"t{number}").record for number in reversed(range(count))]


def agrees(home: Home, paths: Sequence[Path]) -> bool:
    """Whether summaries say what the records say, opened one by one."""
    literal = [pq.read_table(path, columns=SHOWN) for path in paths]
    return record_cache.read(home, paths, SHOWN).equals(pa.concat_tables(literal).combine_chunks())


def opened(home: Home, paths: Sequence[Path], monkeypatch: pytest.MonkeyPatch) -> int:
    """How many records a reader opens."""
    seen: list[Path] = []
    collect = record.collect

    def counted(paths: Sequence[Path], *others: Any) -> pa.Table:
        seen.extend(paths)
        return collect(paths, *others)

    with monkeypatch.context() as patch:
        patch.setattr(record, "collect", counted)
        assert agrees(home, paths)
    return len(seen)


def test_records_are_opened_once(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    paths = paths_of(home)
    assert [opened(home, paths, monkeypatch) for _ in range(2)] == [COUNT, 0]
    assert agrees(home, list(reversed(paths)))


def test_records_are_copied_as_they_are_written(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    paths = paths_of(home)
    with record_cache.Copying(home) as copying:
        for path in paths:
            copying.note(path)
    assert opened(home, paths, monkeypatch) == COUNT - FEW


def test_a_copy_waits_for_a_twentieth_more(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record_cache, "FEW", 1)
    paths = [write(home.trial(f"t{number}").record, float(number)) for number in range(64)]
    assert agrees(home, paths[:60])

    with record_cache.Copying(home) as copying:
        copying.note(paths[60])
        copying.submit(int).result()  # after the copy, which learns how many there are
        for path in paths[61:63]:
            copying.note(path)
    assert pq.read_metadata(home.summaries).num_rows == 61


def test_few_records_are_read_as_they_are(home: Home) -> None:
    assert agrees(home, paths_of(home, FEW - 1))
    assert not home.summaries.exists()


def test_what_was_trained_anew_is_read_anew(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    paths = paths_of(home)
    assert agrees(home, paths)
    write(paths[7], -1.0)
    assert opened(home, paths, monkeypatch) == 1
    assert opened(home, paths, monkeypatch) == 1  # too few to write all for
    for path in paths:
        write(path, -2.0)
    assert [opened(home, paths, monkeypatch) for _ in range(2)] == [COUNT, 0]
    assert pq.read_metadata(home.summaries).num_rows == COUNT


def test_a_record_edited_in_place_with_its_time_set_back_is_read_anew(home: Home) -> None:
    paths = paths_of(home)
    assert agrees(home, paths)
    before = paths[0].stat()
    other = write(home.path / "elsewhere" / "record.parquet", 5.0).read_bytes()
    with paths[0].open("r+b") as file:
        file.write(other[: before.st_size].ljust(before.st_size, b"\0"))
    os.utime(paths[0], ns=(before.st_atime_ns, before.st_mtime_ns))
    assert paths[0].stat().st_mtime_ns == before.st_mtime_ns
    with pytest.raises(UserError, match=r"t22/record\.parquet cannot be read"):
        record_cache.read(home, paths, SHOWN)


def test_a_home_that_was_copied_is_read_anew(home: Home, tmp_path_factory: pytest.TempPathFactory) -> None:
    agrees(home, paths_of(home))
    other = Home(tmp_path_factory.mktemp("other"))
    for path in paths_of(home):
        write(other.trial(path.parent.name).record, 9.0)
    home.summaries.rename(other.summaries)
    assert agrees(other, paths_of(other))


def test_trials_that_were_removed_are_forgotten_once_it_is_written(home: Home) -> None:
    paths = paths_of(home)
    agrees(home, paths)
    for path in paths[:2]:
        path.unlink()
        path.parent.rmdir()
    for path in paths[2:]:
        write(path, 1.0)
    assert agrees(home, paths[2:])
    assert pq.read_metadata(home.summaries).num_rows == COUNT - 2


@pytest.mark.parametrize("place", [0.0, 0.3, 0.6, 1.0])
def test_a_damaged_copy_is_made_anew(place: float, home: Home) -> None:
    paths = paths_of(home)
    agrees(home, paths)
    content = bytearray(home.summaries.read_bytes())
    at = min(int(place * len(content)), len(content) - 64)
    content[at : at + 64] = bytes(255 - byte for byte in content[at : at + 64])
    home.summaries.write_bytes(content)
    assert agrees(home, paths)


def test_a_copy_of_an_older_schema_is_made_anew(home: Home) -> None:
    paths = paths_of(home)
    agrees(home, paths)
    pq.write_table(pq.read_table(home.summaries).drop_columns(["steps"]), home.summaries)
    assert agrees(home, paths)
    assert "steps" in pq.read_schema(home.summaries).names


def test_a_disk_that_takes_nothing_costs_only_time(home: Home) -> None:
    home.summaries.mkdir()  # in the way of the file
    assert agrees(home, paths_of(home))


def test_a_record_that_is_gone_is_named(home: Home) -> None:
    paths = paths_of(home)
    paths[3].unlink()
    with pytest.raises(UserError, match=r"t19/record\.parquet cannot be read"):
        record_cache.read(home, paths, SHOWN)


def test_many_records_are_collected_as_one_by_one(home: Home) -> None:
    paths = paths_of(home)
    literal = pa.concat_tables([pq.read_table(path) for path in paths])
    table = record.collect(paths)
    assert table.equals(literal)
    assert table.schema.equals(record.SCHEMA, check_metadata=True)
    assert [part.num_rows for part in record.parts(paths)] == [10, 10, 3]
    assert record.collect(paths, ["seed", "trial_id"]).equals(literal.select(["seed", "trial_id"]))


def test_of_many_records_an_old_one_reads_with_null_and_a_torn_one_is_named(home: Home) -> None:
    paths = paths_of(home)
    old = pq.read_table(paths[5]).drop_columns(["diagnostic_spread"])
    pq.write_table(old, paths[5])
    assert record.collect(paths)["diagnostic_spread"].null_count == 1
    paths[9].write_bytes(paths[9].read_bytes()[:100])
    with pytest.raises(UserError, match=r"t13/record\.parquet cannot be read"):
        record.collect(paths)


def test_folders_named_like_patterns_or_columns_are_only_names(tmp_path: Path) -> None:
    for name in ("runs*", "runs2", "seed=7"):
        for number in range(4):
            write(Home(tmp_path / name).trial(f"t{number}").record, float(len(name)))
    for name in ("runs*", "seed=7"):
        paths = paths_of(Home(tmp_path / name), 4)
        table = record.collect(paths)
        assert table["trial_id"].to_pylist() == [path.parent.name for path in paths]
        assert set(table["test_i2t_r1"].to_pylist()) == {float(len(name))}
        assert set(table["seed"].to_pylist()) == {1}


def test_the_export_holds_every_record(home: Home, tmp_path: Path) -> None:
    paths = paths_of(home)
    with pq.ParquetWriter(tmp_path / "all.parquet", record.SCHEMA) as writer:
        for part in record.parts(paths):
            writer.write_table(part)
    assert pq.read_table(tmp_path / "all.parquet").equals(record.collect(paths))
    assert record.write_records([], home, tmp_path / "none.parquet") == 0
    assert pq.read_table(tmp_path / "none.parquet").schema.equals(record.SCHEMA)


def test_no_flipped_bit_of_a_record_changes_a_number(tmp_path: Path) -> None:
    """In 200 draws; parquet's own checksums let 3 of 100 pass."""
    path = Home(tmp_path).trial("t").record
    path.parent.mkdir(parents=True)
    record.write(path, row("t", 1.0))
    content, whole = path.read_bytes(), record.collect([path])
    draw = random.Random(0)
    for _ in range(200):
        flipped = bytearray(content)
        flipped[draw.randrange(len(flipped))] ^= 1 << draw.randrange(8)
        path.write_bytes(flipped)
        with suppress(UserError):
            assert record.collect([path]).equals(whole)


def test_another_trials_record_is_not_read(home: Home) -> None:
    paths = paths_of(home)
    shutil.copy(paths[0], paths[1])
    with pytest.raises(UserError, match=r"t21/record\.parquet cannot be read: it is the record of t22"):
        record.collect(paths)


@pytest.mark.parametrize("count", [3, COUNT])
def test_records_that_cannot_be_read_are_left_out_and_named(count: int, home: Home) -> None:
    paths = paths_of(home, count)
    for path in paths[:2]:
        path.write_bytes(b"PAR1")
    paths[2].unlink()
    unreadable: record.Unreadable = {}
    table = record_cache.read(home, paths, SHOWN, unreadable)
    assert table["trial_id"].to_pylist() == [path.parent.name for path in paths[3:]]
    assert list(unreadable) == paths[:3]
    assert f"the record {paths[0]} cannot be read" in unreadable[paths[0]]
