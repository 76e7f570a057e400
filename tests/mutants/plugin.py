"""A plugin of pytest: which test executes the lines, in each of pytest's processes, and how long each test takes."""

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import sitecustomize

CONTEXTS = [""]
TESTS: dict[str, dict[str, Any]] = {}


@contextmanager
def _context(name: str) -> Iterator[None]:
    CONTEXTS.append(name)
    _switch()
    try:
        yield
    finally:
        CONTEXTS.pop()
        _switch()


def _switch() -> None:
    os.environ[sitecustomize.CONTEXT] = CONTEXTS[-1]
    sitecustomize.TRACE.switch_context(CONTEXTS[-1])


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    item.user_properties.append(("fixtures", list(getattr(item, "fixturenames", []))))
    with _context(item.nodeid):
        return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(fixturedef: Any) -> Iterator[None]:
    shared = fixturedef.scope != "function"  # only the first of its tests sees it made
    with _context(f"fixture {fixturedef.argname}" if shared else CONTEXTS[-1]):
        return (yield)


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    test = TESTS.setdefault(report.nodeid, {"seconds": 0.0, "passed": True})
    test["seconds"] += report.duration
    test["passed"] &= report.passed
    test["fixtures"] = dict(report.user_properties)["fixtures"]


def pytest_sessionfinish(session: pytest.Session) -> None:
    sitecustomize.finish()
    if not hasattr(session.config, "workerinput"):
        path = Path(os.environ[sitecustomize.FOLDER]) / "tests.json"
        path.write_text(json.dumps(TESTS), encoding="utf-8")
