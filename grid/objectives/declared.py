"""What files declare that import torch, read from their sources: losses and weights above functions, keys of tables.

A listing, a plan and completion need names and parameters, no functions. So of a file only these are executed: the
imports from `goalgrid.grid`, the assignments that use nothing but names known by then, and the decorators that do.
"""

import ast
from collections import UserDict
from collections.abc import Callable, Iterator
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

PROGRAM = Path(__file__).parents[2]
"""The folder of the program's package."""
Entry = TypeVar("Entry")


class Declared(UserDict[str, Entry]):
    """What is declared, by name; read when it is first used, so that `goalgrid --help` does not."""

    def __init__(self, read: Callable[[], dict[str, Entry]]) -> None:
        self._read = read

    @cached_property
    def data(self) -> dict[str, Entry]:  # type: ignore[override]
        return self._read()


def declarations(file: str) -> Iterator[tuple[str, Any]]:
    """The names and entries that the decorators of functions and classes declare, in a file of the program."""
    known: dict[str, Any] = {}
    for statement in _statements(file):
        if isinstance(statement, ast.FunctionDef | ast.ClassDef):
            lists = (decorator for decorator in reversed(statement.decorator_list) if _names(decorator) <= known.keys())
            for decorator in lists:
                declaration = eval(compile(ast.Expression(decorator), file, "eval"), known)
                yield declaration.name, declaration.described(ast.get_docstring(statement))
        elif isinstance(statement, ast.ImportFrom) and str(statement.module).startswith("goalgrid."):
            _import(statement, known)
        elif isinstance(statement, ast.Assign) and _names(statement.value) <= known.keys():
            exec(compile(ast.Module([statement], []), file, "exec"), known)


def keys_of(file: str, table: str) -> list[str]:
    """The keys of a dict that is assigned at the top of a file."""
    values = (
        node.value for node in _statements(file) if isinstance(node, ast.AnnAssign) and _names(node.target) == {table}
    )
    return [ast.literal_eval(key) for value in values if isinstance(value, ast.Dict) for key in value.keys if key]


def _statements(file: str) -> list[ast.stmt]:
    return ast.parse((PROGRAM / file).read_bytes(), file).body


def _import(statement: ast.ImportFrom, known: dict[str, Any]) -> None:
    """Import from `goalgrid.grid`; a definition of another package is known by its dotted name alone."""
    if str(statement.module).startswith("goalgrid.grid."):
        exec(compile(ast.Module([statement], []), str(statement.module), "exec"), known)
    else:
        known.update({alias.asname or alias.name: f"{statement.module}.{alias.name}" for alias in statement.names})


def _names(node: ast.AST) -> set[str]:
    return {part.id for part in ast.walk(node) if isinstance(part, ast.Name)}
