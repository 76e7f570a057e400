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

from goalgrid.grid.messages import LOGGER
from goalgrid.grid.store.home import Home
from tests import rooms_page
from tests.program import FILES, ROOT


def test_contracts_of_imports_are_kept(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """pyproject.toml has them: the arrows between rooms, no circles, and one door for each heavy library."""
    monkeypatch.chdir(ROOT)
    monkeypatch.setattr(LOGGER, "disabled", LOGGER.disabled)  # import-linter disables all loggers that there are
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
    assert sum(name in words for name in names) <= 48


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


PRINTING = {"typer", "click", "rich.print", "rich.get_console", "rich.console.Console", "rich.live", "rich.progress"}
"""Modules, and names in modules, by which a program prints."""
PRINTS = {
    "results/renderers/terminal.py": {"rich.console.Console"},  # renders a table as text, into a string
    "runners/trial/lease.py": {"sys.stdout", "sys.stderr"},  # sends what a trial prints into the trial's log
    "runners/launch/driver.py": {"os._exit"},  # a stuck trainer in this process: nothing else ends it
    "runners/launch/ray_head.py": {"os._exit"},  # threads that wait in Ray's compiled code hear no signal
    "runners/launch/worker.py": {"os._exit"},  # a worker of Ray with a broken GPU
    "runners/training/replica_process.py": {"os._exit"},  # a process of our own, which ends here
}
"""What files outside the command line may use of this, each with the reason."""


def printing(path: Path) -> set[str]:
    """What a file uses to print or to exit: imports of `PRINTING`, streams, `print` and exits."""
    used = set[str]()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names = [name.name for name in node.names]
            used.update(name for name in names if name.split(".")[0] in PRINTING or name in PRINTING)
        elif isinstance(node, ast.ImportFrom):
            module, names = str(node.module), [f"{node.module}.{name.name}" for name in node.names]
            used.update({module, module.split(".")[0]} & PRINTING, {*names} & {*PRINTING, "sys.exit", "os._exit"})
            used.update({"sys.stdout", "sys.stderr"} & {*names})
        elif isinstance(node, ast.Name) and node.id in ("print", "input", "exit", "quit", "SystemExit"):
            used.add(node.id)
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            name = f"{node.value.id}.{node.attr}"
            used.update(
                {name} & {"sys.exit", "sys.stdout", "sys.stderr", "sys.__stdout__", "sys.__stderr__", "os._exit"}
            )
    return used


def test_the_library_neither_prints_nor_exits(tmp_path: Path) -> None:
    """It returns values and reports notes (`grid/messages.py`); the command line prints, and chooses exit codes."""
    library = {path.relative_to(ROOT).as_posix(): path for path in FILES if "cli" not in path.parts}
    used = {name: found for name, path in library.items() if (found := printing(path))}
    assert used == PRINTS
    trial = tmp_path / "trial.py"
    trial.write_text(
        "import sys, typer\nfrom rich.console import Console, Group\nprint(1, file=sys.stderr)\nsys.exit(3)\n"
    )
    assert printing(trial) == {"typer", "rich.console.Console", "print", "sys.stderr", "sys.exit"}


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


@pytest.mark.parametrize("words", ["demo", "demo --layout known", "demo --format latex", "demo --rows recipe"])
def test_a_table_of_a_grid_of_one_s_own_reads_no_paper(trained: Home, words: str) -> None:
    script = (
        "import sys; from goalgrid.cli.app import app\n"
        "try: app(sys.argv[1:])\n"
        "except SystemExit as end: assert end.code == 0\n"
        "print(*(name for name in sys.modules if '.results.reference' in name or '.layouts.paper.' in name), sep='|')"
    )
    command = [sys.executable, "-c", script, "table", *words.split(), "--runs", str(trained.path)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=True)
    *table, entered = done.stdout.splitlines()
    assert table
    assert entered == ""


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
