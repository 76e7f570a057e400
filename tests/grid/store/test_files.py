"""Files are replaced whole or not at all, on real full and real read-only disks."""

import errno
import os
import subprocess
import threading
from pathlib import Path

import pytest

from goalgrid.grid.errors import UserError
from goalgrid.grid.store.files import (
    atomic_write,
    cannot_write,
    flush,
    json_lines,
    make_durable,
    write_json_lines,
    write_text,
)


def test_a_full_disk_leaves_the_old_content(tiny_disk: Path) -> None:
    path = tiny_disk / "file"
    write_text(path, "old")
    with pytest.raises(UserError, match="No space left on device"):
        write_text(path, "new" * 500_000)
    assert path.read_text() == "old"
    assert [file.name for file in tiny_disk.iterdir()] == ["file"]


def test_a_read_only_disk_is_named(tiny_disk: Path) -> None:
    subprocess.run(["mount", "-o", "remount,ro", str(tiny_disk)], check=True)
    with pytest.raises(UserError, match=r"cannot write .* Read-only file system"):
        write_text(tiny_disk / "file", "new")


def test_an_exception_leaves_the_old_content(tmp_path: Path) -> None:
    path = tmp_path / "file"
    write_text(path, "old")
    with pytest.raises(ZeroDivisionError), atomic_write(path) as aside:
        aside.write_text(f"half {1 / 0}")
    assert path.read_text() == "old"
    assert len(list(tmp_path.iterdir())) == 1


def test_json_lines_read_back(tmp_path: Path) -> None:
    rows = [{"epoch": 1, "loss": 0.5}, {"epoch": 2, "loss": float("nan")}]
    write_json_lines(tmp_path / "rows", rows)
    assert [row["epoch"] for row in json_lines(tmp_path / "rows")] == [1, 2]
    assert list(json_lines(tmp_path / "none")) == []


def test_what_is_not_flushed_is_replaced_whole_all_the_same(tmp_path: Path) -> None:
    path = tmp_path / "file"
    write_text(path, "old", durable=False)
    with pytest.raises(ZeroDivisionError), atomic_write(path, durable=False) as aside:
        aside.write_text(f"half {1 / 0}")
    assert path.read_text() == "old"
    write_text(path, "new", durable=False)
    assert [file.read_text() for file in tmp_path.iterdir()] == ["new"]


def test_a_folder_is_made_durable_with_what_is_in_it(tmp_path: Path) -> None:
    """That a power cut leaves it can be tested on no running machine; that a folder that is gone is said, here."""
    (tmp_path / "inner").mkdir()
    write_text(tmp_path / "file", "content", durable=False)
    make_durable(tmp_path)
    assert (tmp_path / "file").read_text() == "content"
    with pytest.raises(UserError, match=r"cannot write .*nowhere: No such file"):
        make_durable(tmp_path / "nowhere")


def test_damaged_lines_are_left_out(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_bytes(b'{"a": 1}\n\xff\xfe\n[2]\n{"a": 3}\n{"a": ')
    assert list(json_lines(path)) == [{"a": 1}, {"a": 3}]
    assert next(json_lines(path, last_first=True)) == {"a": 3}
    (tmp_path / "folder").mkdir()
    assert list(json_lines(tmp_path / "folder")) == []


def test_one_file_is_flushed_while_a_thread_replaces_its_neighbours(tmp_path: Path) -> None:
    """As a trial's checkpoints are while its history is: a flush of the whole folder meets names that are gone."""
    history, last, over = tmp_path / "history.jsonl", tmp_path / "last.ckpt", threading.Event()
    write_json_lines(history, [{"epoch": 1}])
    write_text(last, "0")

    def replace() -> None:
        while not over.is_set():
            last.rename(tmp_path / "previous.ckpt")
            write_text(last, "1", durable=False)

    writer = threading.Thread(target=replace)
    writer.start()
    try:
        for _ in range(200):
            flush(history)
    finally:
        over.set()
        writer.join()
    with pytest.raises(UserError, match="cannot write"):
        flush(tmp_path / "none")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root makes a file another user's")
def test_a_folder_of_a_colleague_that_cannot_be_written_is_told_with_the_way_to_share_it(tmp_path: Path) -> None:
    theirs, denied = tmp_path / "theirs", PermissionError(errno.EACCES, "Permission denied")
    theirs.mkdir()
    mine = str(cannot_write(theirs / "new" / "lease.json", denied))
    assert mine.startswith(
        f"cannot write {theirs / 'new' / 'lease.json'}: Permission denied. Make room or choose another"
    )
    os.chown(theirs, 12345, -1)
    told = str(cannot_write(theirs / "new" / "lease.json", denied))
    assert f"Permission denied. {theirs} belongs to 12345. To share a runs folder" in told
    assert "chmod g+rwxs (setgid), and both users umask 002. Make room" in told
    assert "umask" not in str(cannot_write(theirs / "new", OSError(errno.ENOSPC, "No space left on device")))
