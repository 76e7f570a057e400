"""Which tests execute which lines, as measured once and kept in the checkout's .cache/mutants."""

import hashlib
import itertools
import json
import os
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import Any

from coverage import Coverage, CoverageData

from tests.mutants.faults import Fault
from tests.program import ROOMS


def traced(tree: Path, cache: Path, environment: dict[str, str], fresh: bool = False) -> "Tests":
    """The tests of a copy of the checkout; files of tests that were not traced as they are now are run first."""
    record, sources, files = cache / "traced.json", _digests(tree, ROOMS), _digests(tree, ["tests"])
    if fresh and cache.exists():
        shutil.rmtree(cache)
    tests, before, told = json.loads(record.read_text(encoding="utf-8")) if record.exists() else ({}, {}, sources)
    changed = [name for name in files if Path(name).name.startswith("test_") and before.get(name) != files[name]]
    if changed:
        print(f"which tests execute which lines: {len(changed)} files of tests run", flush=True)
        cache.mkdir(parents=True, exist_ok=True)
        tests |= _trace(tree, cache, environment, changed)
        record.write_text(json.dumps([tests, files, told]), encoding="utf-8")
    return Tests(tests, cache / "lines", {name for name, digest in sources.items() if told.get(name) != digest})


def _digests(tree: Path, folders: Iterable[str]) -> dict[str, str]:
    paths = [path for folder in folders for path in sorted((tree / folder).rglob("*.py"))]
    return {str(path.relative_to(tree)): hashlib.sha256(path.read_bytes()).hexdigest() for path in paths}


def _trace(tree: Path, cache: Path, environment: dict[str, str], files: list[str]) -> dict[str, dict[str, Any]]:
    path = f"{tree / 'tests/mutants/every_process'}:{tree}"
    command = [sys.executable, "-m", "pytest", "-p", "tests.mutants.plugin", "-p", "no:cacheprovider", *files]
    environment = {**os.environ, **environment, "PYTHONPATH": path, "MUTANTS_TRACE": str(cache)}
    subprocess.run(command, cwd=tree, env=environment, check=False)
    lines = Coverage(data_file=str(cache / "lines"), config_file=False)
    lines.load()
    lines.combine([str(cache)])
    lines.save()
    return json.loads((cache / "tests.json").read_text(encoding="utf-8"))


class Tests:
    """Tests that pass, by the lines that they execute.

    Args:
        tests: seconds, fixtures and outcome by name.
        lines: what coverage wrote.
        changed: files of sources whose lines are not those of `lines` any more.
    """

    def __init__(self, tests: dict[str, dict[str, Any]], lines: Path, changed: Collection[str]) -> None:
        self._tests = {name: test for name, test in tests.items() if test["passed"]}
        self._made = {fixture: took for test in tests.values() for fixture, took in test["made"].items()}
        self._lines, self._changed = CoverageData(str(lines)), changed
        self._lines.read()

    def of(self, fault: Fault, seconds: float) -> list[str]:
        """Tests that execute the fault, and the others of its own test file, which may do so in a copy of the sources.

        Where none was seen to, those that execute anything of its file. The fastest come first, for so many seconds; of
        a test's many parameters, each further one counts more, and tests beside the file's own count less.
        """
        contexts = self._contexts(fault.executed, self._changed) or self._contexts(fault.executed, fault.executed)
        shared = {context.removeprefix("fixture ") for context in contexts if context.startswith("fixture ")}
        own, room = f"/test_{Path(fault.file).stem}.py::", f"tests/{Path(fault.file).parent}/"
        seconds_of = {name: test["seconds"] - sum(test["made"].values()) for name, test in self._tests.items()}
        variants = Counter[str]()
        costs = dict[str, tuple[bool, float]]()
        for name in sorted(self._tests, key=seconds_of.__getitem__):
            fixtures = self._tests[name]["fixtures"]
            executes = name in contexts or bool(shared & set(fixtures))
            if executes or own in name:
                variants[name.partition("[")[0]] += 1
                first = sum(self._made.get(fixture, 0) for fixture in fixtures)
                cost = seconds_of[name] * variants[name.partition("[")[0]] + first
                costs[name] = not executes, cost * (0.1 if own in name else 0.5 if name.startswith(room) else 1)
        chosen = sorted(costs, key=costs.__getitem__)
        ends = itertools.accumulate(seconds_of[name] for name in chosen)
        return [name for name, end in zip(chosen, ends, strict=True) if end <= seconds or name == chosen[0]]

    def _contexts(self, executed: dict[str, set[int]], whole: Collection[str]) -> set[str]:
        """Tests and fixtures that execute one of the lines, or anything of these whole files."""
        contexts = set[str]()
        for measured in self._lines.measured_files():
            for name, lines in executed.items():
                if measured.endswith(f"/{name}"):
                    of_line = self._lines.contexts_by_lineno(measured)
                    contexts.update(*(of_line.get(line, ()) for line in (of_line if name in whole else lines)))
        return contexts - {""}
