"""One fault in a copy of the checkout: whether a test that executes it fails."""

import math
import os
import re
import shutil
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.mutants.faults import Fault

PASSED = {pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED}
ASSERTED = ("assert ", "AssertionError", "Failed: ")
"""How pytest's summary says that a test looked at what the fault changed; any other error, it only ran into."""
PATIENCE = 300
"""Seconds that one test and the fixtures may take, where the machine is busy."""


def copy(checkout: Path, tree: Path) -> None:
    """Copy the files that git knows or would add; the environment with its packages is shared."""
    listing = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    listed = subprocess.run(listing, cwd=checkout, capture_output=True, text=True, check=True).stdout.split("\0")
    for name in listed:
        if (checkout / name).is_file() or (checkout / name).is_symlink():
            (tree / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(checkout / name, tree / name, follow_symlinks=False)
    (tree / ".venv").symlink_to(checkout / ".venv")


@contextmanager
def planted(fault: Fault, tree: Path) -> Iterator[None]:
    """The fault stands in the copy meanwhile."""
    path = tree / fault.file
    source, times = path.read_bytes(), path.stat()
    path.write_bytes(fault.text(source))  # its moment is new, so that no compiled file is taken for it
    try:
        yield
    finally:
        path.write_bytes(source)
        os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))


class Selected:
    """A plugin of pytest: these tests, in this order, as many as begin in so many seconds.

    A test whose name a fault changes is left out: `make test` would not miss it.
    """

    def __init__(self, names: Iterable[str], seconds: float) -> None:
        self._places = {name: place for place, name in enumerate(names)}
        self._seconds, self._end = seconds, math.inf

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        items[:] = [item for item in items if item.nodeid in self._places]
        items.sort(key=lambda item: self._places[item.nodeid])
        self._end = time.monotonic() + self._seconds

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(self) -> bool | None:
        return True if time.monotonic() > self._end else None


@dataclass(frozen=True)
class Failing:
    """A test that failed: its name, and whether by something else than an assertion."""

    test: str
    crashed: bool


def noticing(fault: Fault, tests: list[str], tree: Path, environment: dict[str, str], seconds: float) -> Failing | None:
    """The first of the tests that fails with the fault and passes without it, or nothing."""
    left = tests
    while left:
        with planted(fault, tree):
            failed = failing(left, tree, environment, seconds)
        if failed is None or failed.test not in left or not failing([failed.test], tree, environment, seconds):
            return failed
        left = [name for name in left if name != failed.test]  # it fails on the right program, too
    return None


def failing(tests: list[str], tree: Path, environment: dict[str, str], seconds: float) -> Failing | None:
    """The first of the tests that fails, or nothing. After so many seconds none begins; one that does not end fails.

    The tests run in a fork, which has imported what this process has: that saves most of the time.
    """
    log = tree / ".mutants.log"
    if not (process := os.fork()):
        code = int(pytest.ExitCode.INTERNAL_ERROR)
        try:
            code = _run(Selected(tests, seconds), tests, tree, environment, log)
        except BaseException:
            traceback.print_exc(file=sys.__stderr__)
        finally:
            os._exit(code)
    end = time.monotonic() + 2 * seconds + PATIENCE
    while not (ended := os.waitpid(process, os.WNOHANG))[0]:
        time.sleep(0.05)
        if time.monotonic() > end:
            os.killpg(process, signal.SIGKILL)
            os.waitpid(process, 0)
            return Failing("tests that do not end", crashed=True)
    code, told = os.waitstatus_to_exitcode(ended[1]), log.read_text(encoding="utf-8", errors="replace")
    if code in PASSED:
        return None
    if code == pytest.ExitCode.INTERNAL_ERROR:
        raise RuntimeError(f"pytest does not run:\n{told}")
    named = re.search(r"^(FAILED|ERROR) (.+?)(?: - (.*))?$", told, re.MULTILINE)
    if named is None:
        return Failing(f"pytest, which ends with {code}", crashed=True)
    return Failing(named[2], crashed=named[1] == "ERROR" or not (named[3] or "").startswith(ASSERTED))


def _run(selected: Selected, tests: list[str], tree: Path, environment: dict[str, str], log: Path) -> int:
    os.setsid()
    os.chdir(tree)
    os.environ |= {**environment, "PYTHONPATH": str(tree)}
    sys.path[0] = str(tree)
    for name in [name for name in sys.modules if name.partition(".")[0] == "tests"]:
        del sys.modules[name]  # they are of the checkout, not of the copy
    output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(output, sys.stdout.fileno())
    os.dup2(output, sys.stderr.fileno())
    files = dict.fromkeys(name.partition("::")[0] for name in tests)
    plain = ["-n", "0", "-p", "no:cacheprovider", "-W", "ignore::pytest.PytestAssertRewriteWarning"]
    return pytest.main([*plain, "-x", "-rfE", f"--basetemp={tree / '.pytest'}", *files], plugins=[selected])


def refused_by_types(tree: Path, cache: Path) -> bool:
    """Whether mypy finds an error."""
    command = [sys.executable, "-m", "mypy", "--cache-dir", str(cache / "mypy")]
    return subprocess.run(command, cwd=tree, capture_output=True).returncode == 1
