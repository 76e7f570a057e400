"""Replaces local variable names in syntax trees by canonical ones, so that renaming a local changes nothing.

A local becomes e.g. `%1.0`: the depth of its scope, then its index in the order in which that scope first binds its
locals. A function is one level deeper than the enclosing function or comprehension; classes do not count. Names that
other code may refer to are kept: parameters, names bound by an import, `def` or `class`, names declared `global`, and
names bound in a module or class body. All names are kept in a function that accesses its locals by name, e.g. with
`eval`.
"""

import ast
from collections.abc import Iterator
from functools import cache, cached_property
from typing import Any

INSIDE: dict[type[ast.AST], tuple[str, ...]] = {
    **dict.fromkeys((ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef), ("body",)),
    **dict.fromkeys((ast.ListComp, ast.SetComp, ast.GeneratorExp), ("elt", "generators")),
    ast.DictComp: ("key", "value", "generators"),
}
"""Fields of a node that are evaluated in the node's scope; others, e.g. defaults, in the enclosing scope."""
_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.GeneratorExp, ast.DictComp)

_NAME = {
    ast.Name: "id", ast.ExceptHandler: "name", ast.MatchAs: "name", ast.MatchStar: "name", ast.MatchMapping: "rest",
    ast.Nonlocal: "names",
}  # fmt: skip
"""The field of each node type that holds the name or names of variables."""

_BINDERS = frozenset((*_NAME, *INSIDE, ast.NamedExpr, ast.Call, ast.Global, ast.Import, ast.ImportFrom))
"""The node types that `Scopes._bind` handles."""

_LEAVES = (ast.expr_context, ast.Constant, ast.operator, ast.unaryop, ast.cmpop, ast.boolop, ast.alias, ast.arg)
"""Node types without variables below them; parameters and imports are handled in the parent node."""

BY_NAME = {"locals", "eval", "exec"}
"""Functions that access their caller's locals by name; `vars` and `dir` without arguments also do."""


class Scope:
    """The names bound by a function, class or comprehension; by the module if there is no node."""

    def __init__(self, node: ast.AST | None = None, parent: "Scope | None" = None) -> None:
        self.node, self.parent = node, parent
        self.is_class, self.is_comprehension = isinstance(node, ast.ClassDef), isinstance(node, _COMPREHENSIONS)
        self.bound: dict[str, None] = {}
        """Names in the order in which they are first bound."""
        self.written: set[str] = set()
        """Bound names that are kept as written."""
        self.globals: set[str] = set()
        self.nonlocals: set[str] = set()
        self.by_name = False
        """Whether the scope accesses its locals by name, e.g. with `eval`."""
        self.read_by_name: set[str] = set()
        """Names that nested functions may access by name."""
        self.depth: int = parent.depth if parent else 0
        """Nesting depth; 0 outside functions."""
        if parent and not self.is_class and (self.depth or not self.is_comprehension):
            self.depth += 1

    def bind(self, name: str | None, *, written: bool = False) -> None:
        if name:
            self.bound.setdefault(name)
            self.written |= {name} if written else set()

    @property
    def around(self) -> "Iterator[Scope]":
        """This scope and its enclosing scopes, from the inside out."""
        scope: Scope | None = self
        while scope:
            yield scope
            scope = scope.parent

    @property
    def function(self) -> "Scope":
        """The innermost function scope, which may be this one; the module scope outside functions."""
        return next(scope for scope in self.around if not (scope.is_class or scope.is_comprehension))

    @cached_property
    def placeholders(self) -> dict[str, str]:
        """The canonical names of this scope's locals."""
        if not self.depth or self.is_class or any(scope.by_name for scope in self.around):
            return {}
        elsewhere = self.written | self.globals | self.nonlocals | self.read_by_name
        names = [name for name in self.bound if name not in elsewhere and not _is_mangled(name)]
        return {name: f"%{self.depth}.{place}" for place, name in enumerate(names)}

    def binder(self, name: str) -> "Scope | None":
        """Return the scope that binds a name used in this scope; None if it is global or built-in."""
        for scope in self.around:
            if scope.is_class and scope is not self:  # its names are attributes, which functions in it do not see
                continue
            if name in scope.globals:
                return None
            if name in scope.bound and name not in scope.nonlocals:
                return scope if scope.node else None
        return None

    def canonical(self, name: str) -> str:
        binder = self.binder(name)
        return binder.placeholders.get(name, name) if binder else name


class Scopes:
    """The scopes in a syntax tree, resolved by Python's rules."""

    def __init__(self, tree: ast.AST) -> None:
        self.module = Scope()
        self.every: list[Scope] = []
        self.begins: dict[ast.AST, Scope] = {}
        """The scope that evaluates a node, for nodes where it differs from the parent's."""
        self._visit(tree, self.module)
        for scope in self.every:
            if scope.by_name and scope.node:  # what it reads of the scopes around it is read by name, too
                names = {node.id for node in ast.walk(scope.node) if isinstance(node, ast.Name)}
                for outer in scope.around:
                    outer.read_by_name |= names

    def _visit(self, node: ast.AST, scope: Scope) -> None:
        inner = scope
        if type(node) in INSIDE:
            inner = Scope(node, scope)
            self.every.append(inner)
        if isinstance(node, _COMPREHENSIONS):
            self.begins[node.generators[0].iter] = scope
        if type(node) in _BINDERS:
            self._bind(node, scope, inner)
        for field, part in _parts(node):
            if isinstance(node, ast.NamedExpr) and field == "target":
                continue
            place = self.begins.get(part, inner if field in INSIDE.get(type(node), ()) else scope)
            if place is not scope:
                self.begins[part] = place
            self._visit(part, place)

    def _bind(self, node: ast.AST, scope: Scope, inner: Scope) -> None:
        """Register the names that the node binds, in the current scope or in the scope of its body."""
        match node:
            case ast.NamedExpr(target=ast.Name(id=name)):  # in a comprehension it binds outside of it
                next(outer for outer in scope.around if not outer.is_comprehension).bind(name)
            case ast.Name(id=name, ctx=ast.Load()):
                scope.function.by_name |= name in BY_NAME
            case ast.Name(id=name) | ast.ExceptHandler(name=name) | ast.MatchAs(name=name) | ast.MatchStar(name=name):
                scope.bind(name)
            case ast.MatchMapping(rest=name):
                scope.bind(name)
            case ast.Call(func=ast.Name(id="vars" | "dir"), args=[], keywords=[]):
                scope.function.by_name = True
            case ast.Global(names=names):
                scope.globals.update(names)
            case ast.Nonlocal(names=names):
                scope.nonlocals.update(names)
            case ast.Import(names=aliases) | ast.ImportFrom(names=aliases):
                for alias in aliases:
                    scope.bind(alias.asname or alias.name.partition(".")[0], written=True)
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                scope.bind(name, written=True)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            of = node.args
            for argument in (*of.posonlyargs, *of.args, of.vararg, *of.kwonlyargs, of.kwarg):
                inner.bind(argument.arg if argument else None, written=True)

    def canonical(self, node: ast.AST, scope: Scope) -> ast.AST:
        """Return a copy of the tree with canonical names; `scope` is the scope that evaluates `node`."""
        fields = {
            field: [self._part(part, scope) for part in value] if isinstance(value, list) else self._part(value, scope)
            for field, value in ast.iter_fields(node)
        }
        if place := _NAME.get(type(node)):
            name = fields[place]
            fields[place] = [*map(scope.canonical, name)] if isinstance(name, list) else name and scope.canonical(name)
        return type(node)(**fields)

    def _part(self, part: Any, scope: Scope) -> Any:
        if not isinstance(part, ast.AST) or isinstance(part, _LEAVES):
            return part
        return self.canonical(part, self.begins.get(part, scope))


@cache
def canonical(tree: ast.AST) -> ast.AST:
    """Return the tree with canonical local names; the tree itself if it has no locals. Callers must not modify it."""
    scopes = Scopes(tree)
    return scopes.canonical(tree, scopes.module) if any(scope.placeholders for scope in scopes.every) else tree


def _parts(node: ast.AST) -> Iterator[tuple[str, ast.AST]]:
    """Yield the child nodes that may contain variables, each with its field name."""
    for field, value in ast.iter_fields(node):
        for part in value if isinstance(value, list) else (value,):
            if isinstance(part, ast.AST) and not isinstance(part, _LEAVES):
                yield field, part


def _is_mangled(name: str) -> bool:
    """Return whether Python mangles the name with the class name, so that it differs inside and outside a class."""
    return name.startswith("__") and not name.endswith("__")
