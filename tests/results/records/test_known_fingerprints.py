"""Fingerprints that were found before are known, whatever became of the file that holds them."""

import os
from itertools import count
from pathlib import Path

import pytest

from goalgrid.results.records.provenance import STATES_KEPT, fingerprints_folder, known_or_found

from ...conftest import swapped


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return fingerprints_folder()


def told(sources: str, key: object, numbers: "count[int]" = count()) -> str:  # noqa: B008
    """What is known, else the next number."""
    return known_or_found(sources, key, lambda: f"found {next(numbers)}")


def test_it_is_found_once_for_the_same_sources_and_key(cache: Path) -> None:
    first = told("a", [["root"], ["con_con"]])
    assert told("a", [["root"], ["con_con"]]) == first
    assert len({first, told("b", [["root"], ["con_con"]]), told("a", [["root"], ["lin_con"]])}) == 3
    assert told("a", [["root"], ["con_con"]]) == first


@pytest.mark.parametrize("content", ["", "{", "[1]", '{"a": 1}', '{"found": {"a": 1}}', "\0", None])
def test_a_damaged_file_is_written_anew(cache: Path, content: str | None) -> None:
    first = told("a", "key")
    (file,) = cache.iterdir()
    file.write_text(swapped(file.read_text(), "found ", "fount ") if content is None else content)
    second = told("a", "key")
    assert first != second == told("a", "key")


def test_a_folder_that_cannot_be_written_changes_no_fingerprint(cache: Path) -> None:
    cache.parent.write_text("a file")
    assert told("a", "key") != told("a", "key")
    assert cache.parent.read_text() == "a file"


def test_the_latest_states_of_the_sources_stay(cache: Path) -> None:
    told("oldest", "key")
    (oldest,) = cache.iterdir()
    os.utime(oldest, (0, 0))
    values = {state: told(state, "key") for state in map(str, range(STATES_KEPT))}
    assert len(list(cache.iterdir())) == STATES_KEPT
    assert not oldest.exists()
    assert {state: told(state, "key") for state in values} == values
