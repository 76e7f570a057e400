"""Which tests execute which lines, as measured once and kept in the checkout's .cache/mutants."""

import hashlib
import itertools
import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

from coverage import Coverage, CoverageData

from tests.mutants.faults import Fault


def traced(tree: Path, cache: Path, environment: dict[str, str], fresh: bool = False) -> "Tests":
    """The tests of a copy of the checkout; files of tests that were not traced as they are now are run first."""
    record = cache / "traced.json"
    tests, before = json.loads(record.read_text(encoding="utf-8")) if record.exists() and not fresh else ({}, {})
    files = {str(path.relative_to(tree)): path for path in sorted((tree / "tests").rglob("test_*.py"))}
    digests = {name: hashlib.sha256(path.read_bytes()).hexdigest() for name, path in files.items()}
    if changed := [name for name in files if before.get(name) != digests[name]]:
        print(f"which tests execute which lines: {len(changed)} files of tests run", flush=True)
        cache.mkdir(parents=True, exist_ok=True)
        tests |= _trace(tree, cache, environment, changed)
        record.write_text(json.dumps([tests, digests]), encoding="utf-8")
    return Tests(tests, cache / "lines")


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
    """Tests that pass, by the lines that they execute."""

    def __init__(self, tests: dict[str, dict[str, Any]], lines: Path) -> None:
        self._tests = {name: test for name, test in tests.items() if test["passed"]}
        self._made = {fixture: took for test in tests.values() for fixture, took in test["made"].items()}
        self._lines = CoverageData(str(lines))
        self._lines.read()

    def of(self, fault: Fault, seconds: float) -> list[str]:
        """Tests that execute the fault, and the others of its own test file, which may do so in a copy of the sources.

        The fastest come first, for so many seconds; of a test's many parameters, each further one counts more.
        """
        contexts = set[str]()
        for measured in self._lines.measured_files():
            for name, lines in fault.executed.items():
                if measured.endswith(f"/{name}"):
                    of_line = self._lines.contexts_by_lineno(measured)
                    contexts.update(*(of_line.get(line, ()) for line in lines))
        shared = {context.removeprefix("fixture ") for context in contexts if context.startswith("fixture ")}
        own = f"/test_{Path(fault.file).stem}.py::"
        seconds_of = {name: test["seconds"] - sum(test["made"].values()) for name, test in self._tests.items()}
        variants = Counter[str]()
        costs = dict[str, tuple[bool, float]]()
        for name in sorted(self._tests, key=seconds_of.__getitem__):
            fixtures = self._tests[name]["fixtures"]
            executes = name in contexts or bool(shared & set(fixtures))
            if executes or own in name:
                variants[name.partition("[")[0]] += 1
                first = sum(self._made.get(fixture, 0) for fixture in fixtures)
                costs[name] = not executes, seconds_of[name] * variants[name.partition("[")[0]] + first
        chosen = sorted(costs, key=costs.__getitem__)
        ends = itertools.accumulate(seconds_of[name] for name in chosen)
        return [name for name, end in zip(chosen, ends, strict=True) if end <= seconds or name == chosen[0]]
