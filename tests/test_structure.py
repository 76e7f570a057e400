"""The rooms and their arrows, read from the imports; and what answering a verb may load."""

import ast
import os
import re
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

from goalgrid.grid.store.home import Home
from tests import rooms_page
from tests.program import FILES, ROOT, module_of

ARROWS = {
    "grid": set(),
    "objectives": {"grid"},
    "retrieval": {"grid"},
    "results": {"grid"},
    "runners": {"grid", "objectives", "retrieval", "results"},
    "goalgrid": {"grid", "objectives", "retrieval", "results", "runners"},
}
"""Each room with the rooms that it may import."""
MODULES = {module_of(path): path for path in FILES}


@cache
def imported(path: Path) -> set[str]:
    """Every module that a file imports, wherever in it, and every name that it imports from a module."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
    return names


def libraries_of(path: Path) -> set[str]:
    """Top-level names of what a file imports."""
    return {name.partition(".")[0] for name in imported(path)}


def modules_of(path: Path) -> set[str]:
    """Modules of this project that a file imports."""
    names = {name if name in MODULES else name.rpartition(".")[0] for name in imported(path)}
    return names & MODULES.keys()


def test_arrows_only_point_down() -> None:
    """Parts may import objectives, too: a system's loss and network stand side by side."""
    upwards = []
    for path in FILES:
        room, *below = path.relative_to(ROOT).parts
        beside = {"objectives"} if room == "retrieval" and below[0] == "parts" else set()
        rooms = {MODULES[name].relative_to(ROOT).parts[0] for name in modules_of(path)}
        upwards += [f"{path.relative_to(ROOT)} imports {other}/" for other in rooms - ARROWS[room] - {room} - beside]
    assert upwards == []


def test_no_two_folders_import_one_another() -> None:
    arrows = {
        (path.parent, MODULES[module].parent)
        for path in FILES
        for module in modules_of(path)
        if MODULES[module].parent != path.parent
    }
    both = {frozenset((a, b)) for a, b in arrows if (b, a) in arrows}
    assert [sorted(str(folder.relative_to(ROOT)) for folder in pair) for pair in both] == []


RUNNERS = ("training", "trial", "gpu", "watching", "launch", "selftest")
"""Each room of runners/ may import the rooms before it, but for gpu/, which needs training/ alone."""


@pytest.mark.parametrize("room", RUNNERS)
def test_a_trial_knows_no_launch_and_training_knows_no_trial(room: str) -> None:
    allowed = {"training", "gpu"} if room == "gpu" else set(RUNNERS[: RUNNERS.index(room) + 1])
    rooms = {
        module.split(".")[2]
        for path in (ROOT / "runners" / room).glob("*.py")
        for module in modules_of(path)
        if module.startswith("goalgrid.runners.")
    }
    assert rooms <= allowed


def test_grid_knows_no_torch_ray_or_pandas() -> None:
    for path in (ROOT / "grid").rglob("*.py"):
        assert not libraries_of(path) & {"torch", "ray", "pandas", "numpy", "pyarrow", "mlflow"}, path


@pytest.mark.parametrize(
    ("library", "file"),
    [
        ("ray", "runners/launch/ray_nodes.py runners/launch/ray_private.py runners/launch/ray_tune.py"),
        ("mlflow", "runners/watching/mlflow_mirror.py"),
        ("tensorboardX", "runners/watching/trackers.py"),
        ("wandb", "runners/watching/trackers.py"),
    ],
)
def test_heavy_libraries_have_one_door(library: str, file: str) -> None:
    assert [str(path.relative_to(ROOT)) for path in FILES if library in libraries_of(path)] == file.split()


def test_matplotlib_is_loaded_where_figures_are_drawn() -> None:
    """Types aside, as the docstring of results/figures says."""
    loading = set()
    for path in FILES:
        text = re.sub(r"^if TYPE_CHECKING:\n(?:(?: .*)?\n)*", "", path.read_text(encoding="utf-8"), flags=re.MULTILINE)
        if re.search(r"^\s*(?:from|import) matplotlib", text, re.MULTILINE):
            loading.add(str(path.relative_to(ROOT)))
    assert {name for name in loading if not name.startswith("results/figures/")} == {"objectives/diagrams.py"}


def test_every_file_says_first_what_it_is_for() -> None:
    assert [path for path in FILES if not path.read_text(encoding="utf-8").startswith('"""')] == []


def test_names_are_nouns() -> None:
    """The rest stands in code that decides numbers: renaming it there would make finished trials stale."""
    words = {"found", "own", "told", "said", "each", "wanted", "kept", "left", "made", "held", "drawn"}
    nodes = [node for path in FILES for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))]
    names = [node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)]
    names += [node.arg for node in nodes if isinstance(node, ast.arg)]
    names += [node.name for node in nodes if isinstance(node, ast.FunctionDef | ast.ClassDef)]
    assert sum(name in words for name in names) <= 60


def test_the_page_of_the_rooms_is_made_from_their_first_lines() -> None:
    page = (ROOT / "docs" / "rooms.md").read_text(encoding="utf-8")
    write = "python -m tests.rooms_page > docs/rooms.md"
    assert page == "\n".join(rooms_page.lines()) + "\n", f"docs/rooms.md is old; write it: {write}"


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
        "from goalgrid.app import app\n"
        "try: app(sys.argv[1:])\n"
        "except SystemExit: print(*opened)"
    )
    done = subprocess.run([sys.executable, "-c", script, verb], capture_output=True, text=True, cwd=ROOT)
    sources = ("objectives/hinge.py", "encoders/pooling.py")
    assert "goalgrid/" in done.stdout
    assert [name for name in sources if f"/{name}" in done.stdout] == read


def test_a_verb_loads_only_what_it_needs(trained: Home, tmp_path: Path) -> None:
    script = (
        "import io, sys, contextlib; from goalgrid.app import app\n"
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
