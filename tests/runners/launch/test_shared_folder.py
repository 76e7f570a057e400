"""The runs folder's mark: one, whoever begins when; waited for, and missed."""

import errno
import os
import threading
from pathlib import Path

import pytest

from goalgrid.grid.errors import UserError
from goalgrid.grid.store.home import Home
from goalgrid.results.records import provenance
from goalgrid.runners.launch import shared_folder


def test_launches_that_begin_at_once_agree_on_the_mark(tmp_path: Path) -> None:
    for turn in range(20):
        home, ready, found = Home(tmp_path / str(turn)), threading.Barrier(8), list[str]()

        def begin(home: Home = home, ready: threading.Barrier = ready, found: list[str] = found) -> None:
            ready.wait()
            found.append(shared_folder.mark(home))

        threads = [threading.Thread(target=begin) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(found) == 8
        assert set(found) == {shared_folder.mark(home)}


def test_another_folder_under_the_same_path_is_waited_for_then_named(tmp_path: Path) -> None:
    home = Home(tmp_path)
    shared_folder.wait_for(home, shared_folder.mark(home), 0)
    with pytest.raises(UserError, match="does not see the runs folder"):
        shared_folder.wait_for(home, "another mark", 0.3)


def test_a_folder_that_is_mounted_late_is_waited_for(tmp_path: Path) -> None:
    home = Home(tmp_path)
    threading.Timer(0.05, home.mark.write_text, ["late\n"]).start()
    shared_folder.wait_for(home, "late", 60)


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match=r"cannot write .*\.goalgrid.*choose another folder \(of trials: --runs\)"):
        shared_folder.mark(Home(tmp_path / "file" / "runs"))


@pytest.mark.parametrize("content", [b"", b"\0\0\0\n", b"\xff\xfe"])
def test_a_damaged_mark_is_named(tmp_path: Path, content: bytes) -> None:
    """An empty mark would be seen on every empty mount point."""
    Home(tmp_path).mark.write_bytes(content)
    with pytest.raises(UserError, match=r"the mark .*\.goalgrid is damaged. Delete it"):
        shared_folder.mark(Home(tmp_path))
    Home(tmp_path).mark.unlink()
    assert shared_folder.mark(Home(tmp_path))


def test_a_file_system_without_hard_links_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def link(*_: object) -> None:
        raise PermissionError(errno.EPERM, "Operation not permitted")  # as FAT and many object stores say it

    monkeypatch.setattr(os, "link", link)
    with pytest.raises(
        UserError, match=r"has no hard links, which processes need to lock trials\. Choose another folder"
    ):
        shared_folder.mark(Home(tmp_path))


def test_a_node_that_lacks_a_folder_of_data_or_sees_it_empty_names_it(tmp_path: Path) -> None:
    home, data, empty = Home(tmp_path / "runs"), tmp_path / "data", tmp_path / "empty"
    word, code = shared_folder.mark(home), provenance.program_fingerprint()
    data.mkdir()
    empty.mkdir()
    (data / "captions.csv").touch()

    def problem(*paths: Path) -> str:
        return shared_folder.problem_here(str(home.path), word, list(map(str, paths)), 0, code, ())

    assert problem(data, data / "captions.csv") == ""
    assert problem(data, empty).startswith(f"this node does not see {empty}. Data must be")
    assert problem(tmp_path / "gone", empty).startswith(f"this node does not see {tmp_path / 'gone'}, {empty}.")
