"""That many cases in one test are all tried, each without what another patched, and the one that fails is named."""

import os

import pytest

from .cases import every


def test_all_cases_are_tried_until_one_fails_which_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []

    @every("word", ["a", "b"])
    @every(("x", "y"), [(1, 2), (3, 4)])
    def inner(word: str, x: int, y: int, monkeypatch: pytest.MonkeyPatch) -> None:
        assert "CASE" not in os.environ
        monkeypatch.setenv("CASE", word)
        seen.append((word, x))
        assert (word, y) != ("b", 4)

    with pytest.raises(AssertionError) as failure:
        inner(monkeypatch=monkeypatch)
    assert seen == [("a", 1), ("a", 3), ("b", 1), ("b", 3)]
    assert failure.value.__notes__ == ["in the case {'x': 3, 'y': 4}", "in the case {'word': 'b'}"]
