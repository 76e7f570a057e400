"""The rooms and their arrows, read from the imports; and what answering a verb may load."""

import ast
import os
import re
import subprocess
import sys
from pathlib import Path

import grimp
import pytest
from importlinter.cli import EXIT_STATUS_SUCCESS, lint_imports

from goalgrid.grid.store.home import Home
from tests import rooms_page
from tests.program import FILES, ROOT


def test_contracts_of_imports_are_kept(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """pyproject.toml has them: the arrows between rooms, no circles, and one door for each heavy library."""
    monkeypatch.chdir(ROOT)
    kept = lint_imports(config_filename=str(ROOT / "pyproject.toml"), no_cache=True)
    assert kept == EXIT_STATUS_SUCCESS, capsys.readouterr().out


def test_matplotlib_is_loaded_where_figures_are_drawn() -> None:
    """Types aside, as the docstring of results/figures says."""
    graph = grimp.build_graph(
        "goalgrid", include_external_packages=True, exclude_type_checking_imports=True, cache_dir=None
    )
    loading = graph.find_modules_that_directly_import("matplotlib")
    assert {module for module in loading if "results.figures" not in module} == {"goalgrid.objectives.diagrams"}


def test_every_file_says_first_what_it_is_for() -> None:
    assert [path for path in FILES if not path.read_text(encoding="utf-8").startswith('"""')] == []


def test_names_are_nouns() -> None:
    """What is left is of earlier days: names of parameters and functions, which fingerprints of code count."""
    words = {"found", "own", "told", "said", "each", "wanted", "kept", "left", "made", "held", "drawn"}
    nodes = [node for path in FILES for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))]
    names = [node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)]
    names += [node.arg for node in nodes if isinstance(node, ast.arg)]
    names += [node.name for node in nodes if isinstance(node, ast.FunctionDef | ast.ClassDef)]
    assert sum(name in words for name in names) <= 60


def test_the_page_of_the_rooms_is_made_from_their_first_lines() -> None:
    page = (ROOT / "docs" / "rooms.md").read_text(encoding="utf-8")
    assert page == "\n".join(rooms_page.lines()) + "\n", "docs/rooms.md is old; write it: python -m tests.rooms_page"


def test_the_picture_of_the_rooms_has_every_arrow_and_about_as_many_imports() -> None:
    """A fifth more or fewer is no reason to draw it again at each change of an import."""
    number = re.compile(r">(\d+)</text>")
    shown, now = rooms_page.PICTURE.read_text(encoding="utf-8"), "\n".join(rooms_page.picture()) + "\n"
    counts, wanted = (list(map(int, number.findall(text))) for text in (shown, now))
    write = "docs/pictures/rooms.svg is old; write it: python -m tests.rooms_page"
    assert number.sub("", shown) == number.sub("", now), write
    assert counts == [pytest.approx(count, rel=0.2, abs=3) for count in wanted], write


HEAVY = {"torch", "ray", "mlflow", "pandas", "matplotlib", "scipy", "pyarrow", "numpy"}
MAY_LOAD: list[tuple[str, set[str]]] = [
    ("--help", set()),
    ("data", set()),
    ("prune --json", set()),
    ("grids", {"numpy"}),
    ("recipes", {"numpy"}),
    ("tables selhn-table5", {"numpy", "pyarrow"}),
    ("table goal-table3-coco --reference", {"numpy", "pyarrow"}),
    ("table demo", {"numpy", "pyarrow"}),
    ("status demo", {"numpy", "pyarrow"}),
    ("plan demo", {"numpy", "pyarrow"}),
    ("plan demo --force --trials", {"numpy", "pyarrow"}),
    ("effects demo", {"numpy", "pyarrow", "scipy"}),
    ("claims goal demo", {"numpy", "pyarrow", "scipy"}),
    ("table demo --marks", {"numpy", "pyarrow", "scipy"}),
    ("figures demo matrix --output FOLDER", {"numpy", "pyarrow", "scipy", "matplotlib"}),
    ("table demo --format parquet", {"numpy", "pyarrow", "scipy", "matplotlib", "pandas"}),
]
"""Verbs, with the large libraries that each may load beside those of the verbs before it: one process gives all."""


@pytest.mark.parametrize(("verb", "read"), [("--help", []), ("objectives", ["objectives/hinge.py"])])
def test_declarations_are_read_when_they_are_needed(verb: str, read: list[str]) -> None:
    script = (
        "import sys; opened = []\n"
        "sys.addaudithook(lambda event, given: opened.append(str(given[0])) if event == 'open' else None)\n"
        "from goalgrid.cli.app import app\n"
        "try: app(sys.argv[1:])\n"
        "except SystemExit: print(*opened)"
    )
    done = subprocess.run([sys.executable, "-c", script, verb], capture_output=True, text=True, cwd=ROOT)
    sources = ("objectives/hinge.py", "encoders/pooling.py")
    assert "goalgrid/" in done.stdout
    assert [name for name in sources if f"/{name}" in done.stdout] == read


def test_a_verb_loads_only_what_it_needs(trained: Home, tmp_path: Path) -> None:
    script = (
        "import io, sys, contextlib; from goalgrid.cli.app import app\n"
        "for line in sys.argv[1:]:\n"
        "    try:\n"
        "        with contextlib.redirect_stdout(io.StringIO()): app(line.split())\n"
        "    except SystemExit as end: assert end.code in (0, 2, 3), line\n"
        f"    print(line, '|', *({HEAVY!r} & sys.modules.keys()))"
    )
    lines = [line.replace("FOLDER", str(tmp_path / "out")) for line, _ in MAY_LOAD]
    finished = subprocess.run(
        [sys.executable, "-c", script, *lines],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env={**os.environ, "GOALGRID_RUNS": str(trained.path)},
    )
    loaded = [set(line.partition("|")[2].split()) for line in finished.stdout.splitlines()]
    assert len(loaded) == len(MAY_LOAD), finished.stdout + finished.stderr
    for (verb, may), found in zip(MAY_LOAD, loaded, strict=True):
        assert found <= may, f"{verb} loads {found - may}"
