"""Read declarations (of losses, weights and tables) from source files, without importing torch.

Listings, plans and shell completion need only names and parameters. Therefore only these parts of a file are executed:
imports from `goalgrid.grid`, and the assignments and decorators that use only names defined so far.
"""

import ast
from collections import UserDict
from collections.abc import Callable, Iterator
from functools import cached_property
from pathlib import Path
from pkgutil import resolve_name
from typing import Any, TypeVar

from goalgrid.grid.errors import UserError
from goalgrid.grid.imports import Import, NotFollowed, imported

GRID = "goalgrid.grid."
"""Prefix of the modules that may be imported while declarations are read, because they do not import torch."""
PROGRAM = Path(__file__).parents[2]
"""The folder of goalgrid's package."""
Entry = TypeVar("Entry")


class Declared(UserDict[str, Entry]):
    """Declarations by name, read on first use, so that `goalgrid --help` stays fast."""

    def __init__(self, read: Callable[[], dict[str, Entry]]) -> None:
        self._read = read

    @cached_property
    def data(self) -> dict[str, Entry]:  # type: ignore[override]
        return self._read()


def declarations(file: str) -> Iterator[tuple[str, Any]]:
    """Yield the name and entry of each declaration in a source file; raise a UserError if an import is ambiguous."""
    known: dict[str, Any] = {}
    for statement in _statements(file):
        if isinstance(statement, ast.FunctionDef | ast.ClassDef):
            lists = (decorator for decorator in reversed(statement.decorator_list) if _names(decorator) <= known.keys())
            for decorator in lists:
                declaration = eval(compile(ast.Expression(decorator), file, "eval"), known)
                yield declaration.name, declaration.described(ast.get_docstring(statement))
        elif isinstance(statement, ast.Import | ast.ImportFrom):
            known |= _imported(statement, file)
        elif isinstance(statement, ast.Assign) and _names(statement.value) <= known.keys():
            exec(compile(ast.Module([statement], []), file, "exec"), known)


def keys_of(file: str, table: str) -> list[str]:
    """Return the keys of the dict that a file assigns to the top-level name `table`."""
    values = (
        node.value for node in _statements(file) if isinstance(node, ast.AnnAssign) and _names(node.target) == {table}
    )
    return [ast.literal_eval(key) for value in values if isinstance(value, ast.Dict) for key in value.keys if key]


def _statements(file: str) -> list[ast.stmt]:
    return ast.parse((PROGRAM / file).read_bytes(), file).body


def _imported(statement: Import, file: str) -> dict[str, Any]:
    """Import names from `goalgrid.grid`; names from other packages of goalgrid are kept as dotted names."""
    package = ".".join(["goalgrid", *Path(file).parent.parts])
    try:
        names = imported(statement, package)
    except NotFollowed as error:
        fix = "import the names themselves, so that its declarations can be read"
        raise UserError(f"{file}, line {statement.lineno}: {error} cannot be followed; {fix}.") from None
    ours = {name: target for name, target in names if f"{target}.".startswith("goalgrid.")}
    light = {"goalgrid", *(target for target in ours.values() if target.startswith(GRID))}
    return {name: resolve_name(target) if target in light else target for name, target in ours.items()}


def _names(node: ast.AST) -> set[str]:
    return {part.id for part in ast.walk(node) if isinstance(part, ast.Name)}
