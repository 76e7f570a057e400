"""Which names are locals, as Python's own `symtable` says, and what is written in their place."""

import ast
import dataclasses
import re
import symtable
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from textwrap import dedent

import pytest

from goalgrid.results.records.scopes import Scope, Scopes, canonical
from tests.program import FILES

Row = tuple[str, int, frozenset[str], frozenset[str]]
"""A scope: its kind, its line, its locals, and the names that are locals of functions around it."""
LIBRARY = sorted(Path(dataclasses.__file__).parent.glob("*.py"))[::40]
"""Python's own modules, in which more kinds of scopes occur."""


def rows_of_python(table: symtable.SymbolTable, source: str) -> Iterator[Row]:
    for child in table.get_children():
        yield from rows_of_python(child, source)
        symbols = [s for s in child.get_symbols() if s.get_name() not in (".0", "__class__")]
        kept = [s for s in symbols if s.is_local()]
        if child.get_type() == "function":
            kept = [s for s in kept if not (s.is_parameter() or s.is_imported() or s.is_namespace())]
            names = frozenset(s.get_name() for s in kept)
        else:
            names = frozenset()
        free = frozenset(s.get_name() for s in symbols if s.is_free())
        if child.get_type() in ("function", "class"):
            yield child.get_type(), child.get_lineno(), names, free


def rows_of_ours(tree: ast.Module) -> Iterator[Row]:
    scopes = Scopes(tree)
    free: dict[Scope, set[str]] = {scope: set() for scope in scopes.every}

    def look(node: ast.AST, scope: Scope) -> None:
        scope = scopes.begins.get(node, scope)
        names = node.names if isinstance(node, ast.Nonlocal) else [node.id] if isinstance(node, ast.Name) else []
        for name in names:
            binder = scope.binder(name)
            for passed in scope.around if binder else ():
                if passed is binder:
                    break
                if not (passed.is_class and name in passed.bound and name not in passed.nonlocals):
                    free[passed].add(mangled(name, passed))
        for part in ast.iter_child_nodes(node):
            look(part, scope)

    look(tree, scopes.module)
    for scope in scopes.every:
        assert scope.node
        names = scope.bound.keys() - scope.written - scope.globals - scope.nonlocals if not scope.is_class else set()
        line = scope.node.lineno  # type: ignore[attr-defined]
        yield (
            "class" if scope.is_class else "function",
            line,
            frozenset(mangled(n, scope) for n in names),
            frozenset(free[scope]),
        )


def mangled(name: str, scope: Scope) -> str:
    owner = next((s.node.name for s in scope.around if isinstance(s.node, ast.ClassDef)), "")
    private = owner.strip("_") and name.startswith("__") and not name.endswith("__")
    return f"_{owner.lstrip('_')}{name}" if private else name


@pytest.mark.gate
def test_locals_are_those_of_pythons_symbol_tables() -> None:
    """Of this program, of these tests and of Python's modules."""
    tests = sorted(Path(__file__).parents[2].rglob("*.py"))[::40]
    looked = 0
    for path in [*FILES, *tests, *LIBRARY]:
        source = path.read_text(encoding="utf-8")
        if "from __future__ import annotations" in source:  # which gives each annotation a table of its own
            continue
        table = symtable.symtable(source, str(path), "exec")
        ours, pythons = Counter(rows_of_ours(ast.parse(source))), Counter(rows_of_python(table, source))
        assert ours == pythons, (path, ours - pythons, pythons - ours)
        looked += ours.total()
    assert looked > 1_000


CANONICAL = {
    "assignments, loops, handlers": (
        """
        def f(x, *rest, tau=1, **more):
            total = 0
            for part, (a, *b) in x:
                total += part * tau
            with open(x) as file, open(total):
                file.x = more
            try:
                del a
            except ValueError as error:
                raise error
            while (n := rest.pop()):
                x = n
            return b
        """,
        """
        def f(x, *rest, tau=1, **more):
            %1.0 = 0
            for %1.1, (%1.2, *%1.3) in x:
                %1.0 += %1.1 * tau
            with open(x) as %1.4, open(%1.0):
                %1.4.x = more
            try:
                del %1.2
            except ValueError as %1.5:
                raise %1.5
            while (%1.6 := rest.pop()):
                x = %1.6
            return %1.3
        """,
    ),
    "patterns": (
        """
        def f(x):
            match x:
                case [a, *b] | {"k": a, **b} if a:
                    return b
                case Point(x=0, y=c) as d:
                    return (c, d)
        """,
        """
        def f(x):
            match x:
                case [%1.0, *%1.1] | {'k': %1.0, **%1.1} if %1.0:
                    return %1.1
                case Point(x=0, y=%1.3) as %1.2:
                    return (%1.3, %1.2)
        """,
    ),
    "functions in functions": (
        """
        def f():
            a, b = (1, 2)
            def g(c):
                nonlocal b
                b = a
                d = lambda e=a, *e2: (a, e, (h := e2), h)
                return d(c)
            a = g
        """,
        """
        def f():
            %1.0, %1.1 = (1, 2)
            def g(c):
                nonlocal %1.1
                %1.1 = %1.0
                %2.0 = lambda e=%1.0, *e2: (%1.0, e, (%3.0 := e2), %3.0)
                return %2.0(c)
            %1.0 = g
        """,
    ),
    "comprehensions": (
        """
        def f(x):
            a = [a for a in a if (b := a) for c in a]
            return {k: (v, b) for k, v in x for k in [k for _ in k]}
        """,
        """
        def f(x):
            %1.0 = [%2.0 for %2.0 in %1.0 if (%1.1 := %2.0) for %2.1 in %2.0]
            return {%2.0: (%2.1, %1.1) for %2.0, %2.1 in x for %2.0 in [%2.0 for %3.0 in %2.0]}
        """,
    ),
    "what is named from elsewhere": (
        """
        def f(x):
            global a
            import b.c, d as e
            from g import h
            a = b = e = h = k = 1
            def i(): return a
            class j(k): m = k
            i = j
            x = a(b=k).c
        """,
        """
        def f(x):
            global a
            import b.c, d as e
            from g import h
            a = b = e = h = %1.0 = 1
            def i(): return a
            class j(%1.0): m = %1.0
            i = j
            x = a(b=%1.0).c
        """,
    ),
    "classes": (
        """
        class C:
            a = [b for b in range(3)]
            def f(self):
                a = self.a
                class D:
                    a = a
                    c = [a for b in a]
                    def g(self, __d): __e = a; return __e
        """,
        """
        class C:
            a = [b for b in range(3)]
            def f(self):
                %1.0 = self.a
                class D:
                    a = a
                    c = [%1.0 for %2.0 in a]
                    def g(self, __d): __e = %1.0; return __e
        """,
    ),
    "what is global": (
        """
        a = [b for b in c]
        for d in a: e = lambda: (f := d, a)
        def g():
            a = 1
            def h():
                global a
                return lambda: a
        """,
        """
        a = [b for b in c]
        for d in a: e = lambda: (%1.0 := d, a)
        def g():
            %1.0 = 1
            def h():
                global a
                return lambda: a
        """,
    ),
    "names that are read as strings": (
        """
        def f():
            a = b = 1
            def g():
                c = a
                return [eval(d) for d in c]
            def h(): e = vars(b); return e
        """,
        """
        def f():
            a = %1.0 = 1
            def g():
                c = a
                return [eval(d) for d in c]
            def h(): %2.0 = vars(%1.0); return %2.0
        """,
    ),
    "an attribute of that name is no such function": (
        "def f(model): a = model.eval(); return a",
        "def f(model): %1.0 = model.eval(); return %1.0",
    ),
}  # fmt: skip


def text(source: str) -> str:
    return ast.unparse(ast.fix_missing_locations(canonical(ast.parse(source))))


@pytest.mark.parametrize("case", CANONICAL)
def test_locals_are_written_by_depth_and_order(case: str) -> None:
    source, expected = map(dedent, CANONICAL[case])
    encoded = ast.unparse(ast.parse(re.sub(r"%(\d+)\.(\d+)", r"P\1_\2", expected)))
    assert text(source) == re.sub(r"P(\d+)_(\d+)", r"%\1.\2", encoded)


@pytest.mark.parametrize("call", ["locals()", "vars()", "dir()", "eval('a')", "exec('a')", "map(eval, x)"])
def test_a_function_that_reads_its_locals_by_name_stays_as_written(call: str) -> None:
    source = f"def f(x):\n    a = 1\n    return (a, {call})"
    assert text(source) == source
