"""The sources of the program, for tests that read, copy or change them."""

import ast
import shutil
from pathlib import Path

ROOT = Path(__file__).parent.parent
ROOMS = ("grid", "objectives", "retrieval", "results", "runners", "goalgrid")
"""The folders of the checkout that hold the program; links in goalgrid/ make the others packages of it."""
FILES = [path for room in ROOMS for path in sorted((ROOT / room).rglob("*.py"))]


def module_of(path: Path, root: Path = ROOT) -> str:
    """The dotted name of a source file: `goalgrid.grid.store` of grid/store/__init__.py."""
    parts = path.relative_to(root).with_suffix("").parts
    return ".".join(parts if parts[0] == "goalgrid" else ("goalgrid", *parts)).removesuffix(".__init__")


def copied(folder: Path) -> Path:
    """A copy of the program in this folder, laid out as a checkout."""
    for room in ROOMS:
        shutil.copytree(ROOT / room, folder / room, symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))
    return folder


def put_before(name: str, addition: str, file: Path) -> None:
    """Add text to a source, in front of the statement by which its module gets this name."""
    source = file.read_text(encoding="utf-8")
    statement = _statement(name, source)
    first = min([statement.lineno, *(line.lineno for line in getattr(statement, "decorator_list", ()))])
    _put(first, 0, addition, source, file)


def put_into(name: str, entry: str, file: Path) -> None:
    """Add an entry to a dict of a source."""
    source = file.read_text(encoding="utf-8")
    statement = _statement(name, source)
    assert isinstance(statement, ast.Assign | ast.AnnAssign)
    assert isinstance(statement.value, ast.Dict)
    _put(statement.value.lineno, statement.value.col_offset + 1, entry, source, file)


def put_into_result(name: str, factor: str, file: Path) -> None:
    """Multiply what a function of a source returns by a factor."""
    source = file.read_text(encoding="utf-8")
    (end,) = (node for node in ast.walk(_statement(name, source)) if isinstance(node, ast.Return))
    assert end.value
    _put(end.value.lineno, end.value.col_offset, f"{factor} * ", source, file)


def _statement(name: str, source: str) -> ast.stmt:
    """The statement of a module that binds a name, by a definition or by an assignment."""
    for statement in ast.parse(source).body:
        targets = statement.targets if isinstance(statement, ast.Assign) else [getattr(statement, "target", None)]
        bound = [getattr(statement, "name", None), *(getattr(target, "id", None) for target in targets)]
        if name in bound:
            return statement
    raise AssertionError(f"nothing is named {name} there")


def _put(line: int, column: int, addition: str, source: str, file: Path) -> None:
    lines = source.splitlines(keepends=True)
    text = lines[line - 1].encode()
    lines[line - 1] = text[:column].decode() + addition + text[column:].decode()
    file.write_text("".join(lines), encoding="utf-8")
