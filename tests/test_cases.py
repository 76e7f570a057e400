"""That many cases in one test are all tried, each without what another patched, and each that fails is named."""

import os
import subprocess
import sys
from pathlib import Path

from tests.program import ROOT

FILE = """
import os
from tests.cases import every

class TestIt:
    @every("word", ["a", "b"])
    @every(("x", "y"), [(1, 2), (3, 4), (5, 6)])
    def test_it(self, word, x, y, monkeypatch, tmp_path):
        assert "CASE" not in os.environ
        monkeypatch.setenv("CASE", word)
        with (tmp_path.parent / "seen").open("a") as seen:
            seen.write(f"{word}{x} ")
        assert (word, y) not in {("a", 4), ("b", 6)}

def test_that_passes():
    pass
"""


def test_all_cases_are_tried_and_each_that_fails_is_named(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(FILE)
    command = [sys.executable, "-m", "pytest", "-c", os.devnull, "-p", "no:cacheprovider", "--rootdir", str(tmp_path)]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST")}
    finished = subprocess.run(
        [*command, "--basetemp", str(tmp_path / "own"), "test_it.py"],
        cwd=tmp_path, env=environment | {"PYTHONPATH": str(ROOT)}, capture_output=True, text=True,
    )  # fmt: skip
    assert finished.returncode == 1, finished.stdout + finished.stderr
    assert (tmp_path / "own" / "seen").read_text() == "a1 a3 a5 b1 b3 b5 "
    summary = finished.stdout.partition("short test summary info")[2].splitlines()
    named = "SUBFAILED(word='{}', x={}, y={}) test_it.py::TestIt::test_it"
    assert [line.partition(" - ")[0] for line in summary[1:-1]] == [
        named.format("a", 3, 4), named.format("b", 5, 6), "FAILED test_it.py::TestIt::test_it"
    ]  # fmt: skip
    assert "3 failed, 1 passed" in summary[-1]
