"""A trial's folder that cannot be listed, a colleague's or on a failing disk: it is named, and all others are shown."""

import errno
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from grid.store.home import Home

from ..conftest import Goalgrid
from .conftest import PAIR


@pytest.fixture(params=[errno.EACCES, errno.ESTALE, errno.EIO], ids=errno.errorcode.get)
def closed(request: pytest.FixtureRequest, pair: Home, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of one of two finished trials, in which every call of the system fails."""
    folder = str(pair.trials()[0].path)

    def failing(name: str, below: str) -> None:
        call: Callable[..., Any] = getattr(os, name)

        def fails(path: Any = ".", *arguments: Any, **options: Any) -> Any:
            if isinstance(path, str | os.PathLike) and os.fspath(path).startswith(below):
                raise OSError(request.param, os.strerror(request.param), os.fspath(path))
            return call(path, *arguments, **options)

        monkeypatch.setattr(os, name, fails)

    for name in ("listdir", "scandir"):
        failing(name, folder)
    for name in ("open", "stat", "lstat"):
        failing(name, f"{folder}/")
    return Path(folder)


@pytest.mark.parametrize(
    "words",
    [("status", "demo"), ("plan", "demo", *PAIR), ("table", "demo"), ("effects", "demo"), ("prune",)],
    ids=lambda words: words[0],
)
def test_the_trial_is_named_and_the_others_are_shown(
    words: tuple[str, ...], closed: Path, pair: Home, goalgrid: Goalgrid
) -> None:
    ended = goalgrid(*words, runs=pair.path)
    assert "Traceback" not in ended.stderr
    said = ended.stdout + ended.stderr
    assert ended.returncode == (3 if words[0] == "status" else 0), said
    if words[0] in ("status", "plan"):
        assert "1 done, 1 unreadable" in said
    if words[0] == "status":
        assert f"{closed}; have its owner open it to you" in said
    if words[0] == "table":
        assert "1 trial unreadable" in said


def test_run_waits_for_it_then_calls_it_a_fault_of_the_storage(closed: Path, pair: Home, goalgrid: Goalgrid) -> None:
    words = ("run", "demo", *PAIR, "--set", "reliability.folder_seconds=0.5", "--here", "--mlflow-uri", "")
    ended = goalgrid(*words, runs=pair.path)
    assert ended.returncode == 3, ended.stderr
    assert f"storage: {os.strerror(closed_errno(ended.stderr))}: {closed}" in ended.stderr
    assert "2 trials: 1 done, 1 unreadable" in ended.stderr
    found = json.loads(goalgrid("status", "demo", "--json", runs=pair.path).stdout)
    assert list(found["unreadable"]) == [closed.name]


def closed_errno(said: str) -> int:
    return next(code for code in (errno.EACCES, errno.ESTALE, errno.EIO) if os.strerror(code) in said)
