"""A plugin of pytest: which test executes the lines, in each of pytest's processes, and how long each test takes."""

import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import sitecustomize

CONTEXTS = [""]
TESTS: dict[str, dict[str, Any]] = {}
MADE: dict[str, float] = {}
"""Seconds that the shared fixtures took which the test at hand is the first to use."""


@contextmanager
def _context(name: str) -> Iterator[None]:
    CONTEXTS.append(name)
    _switch()
    try:
        yield
    finally:
        CONTEXTS.pop()
        _switch()


def _name(fixturedef: Any) -> str:
    return f"{fixturedef.baseid}::{fixturedef.argname}"


def _switch() -> None:
    os.environ[sitecustomize.CONTEXT] = CONTEXTS[-1]
    sitecustomize.TRACE.switch_context(CONTEXTS[-1])


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    found = item._fixtureinfo.name2fixturedefs.values() if isinstance(item, pytest.Function) else ()
    shared = [_name(fixturedefs[-1]) for fixturedefs in found if fixturedefs[-1].scope != "function"]
    item.user_properties.append(("fixtures", shared))
    with _context(item.nodeid):
        MADE.clear()
        return (yield)


def pytest_runtest_teardown(item: pytest.Item) -> None:
    item.user_properties.append(("made", dict(MADE)))


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(fixturedef: Any) -> Iterator[None]:
    shared = fixturedef.scope != "function"  # only the first of its tests sees it made
    with _context(f"fixture {_name(fixturedef)}" if shared else CONTEXTS[-1]):
        start = time.monotonic()
        result = yield
        if shared:
            MADE[_name(fixturedef)] = time.monotonic() - start
        return result


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    test = TESTS.setdefault(report.nodeid, {"seconds": 0.0, "passed": True})
    test["seconds"] += report.duration
    test["passed"] &= report.passed
    test |= report.user_properties


def pytest_sessionfinish(session: pytest.Session) -> None:
    sitecustomize.finish()
    if not hasattr(session.config, "workerinput"):
        path = Path(os.environ[sitecustomize.FOLDER]) / "tests.json"
        path.write_text(json.dumps(TESTS), encoding="utf-8")
