"""`make mutants` tells a fault that a test notices from one that none can notice."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent

SOURCE = '''"""A room of two functions."""

LIMIT = 2


def above(x: int) -> bool:
    """Whether a number is large."""
    return x > LIMIT


def count(numbers: list[int]) -> int:
    """How many there are, in whatever order."""
    return len(sorted(numbers))
'''

TEST = """import os
from pathlib import Path

from goalgrid.grid.limits import above, count


def test_that_fails_on_the_right_program_too_the_second_time() -> None:
    marker = Path(os.environ["MARKER"])
    assert not marker.exists()
    marker.touch()
    assert count([3, 1]) == 2


def test_limits() -> None:
    assert above(3)
    assert not above(2)
    assert count([3, 1]) == 2
"""


@pytest.mark.gate
def test_a_planted_fault_is_noticed_and_equal_code_survives(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "tests" / "mutants", tmp_path / "tests" / "mutants")
    shutil.copy(ROOT / "tests" / "program.py", tmp_path / "tests")
    for room in ("grid", "goalgrid"):
        (tmp_path / room).mkdir()
        (tmp_path / room / "__init__.py").touch()
    (tmp_path / "goalgrid" / "grid").symlink_to("../grid")
    (tmp_path / "grid" / "limits.py").write_text(SOURCE)
    (tmp_path / "tests" / "test_limits.py").write_text(TEST)
    (tmp_path / ".gitignore").write_text(".cache\n.venv\n__pycache__\n")
    subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True)
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST")}
    environment["MARKER"] = str(tmp_path.with_name("ran"))
    finished = subprocess.run(
        [sys.executable, "-m", "tests.mutants", "grid", "--n", "3", "--seed", "1"],
        cwd=tmp_path, env=environment, capture_output=True, text=True,
    )  # fmt: skip
    assert "Noticed: 2 of 3 (0 by a crash), seed 1. Survived:" in finished.stdout, finished.stdout + finished.stderr
    survivors = finished.stdout.partition("Survived:")[2]
    assert survivors.split("\n\n")[1:] == [
        "grid/limits.py:13\n-    return len(sorted(numbers))\n+    return len((numbers))\n"
    ]
    assert (tmp_path / "grid" / "limits.py").read_text() == SOURCE
