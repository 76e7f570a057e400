"""Syntax trees, read for what decides what code does: the text of a definition, the names and the strings in it."""

import ast
from collections.abc import Callable, Iterable, Sequence

_IGNORED = frozenset({"ctx", "type_comment", "kind", "returns", "type_params"})
"""Fields of a syntax tree that change no number."""


class Reader:
    """Reads syntax trees as text, names and strings.

    Args:
        is_settings: whether a class's fields are settings.
    """

    def __init__(self, is_settings: Callable[[ast.ClassDef], bool]) -> None:
        self.text: list[str] = []
        self.names: set[str] = set()
        self.strings: set[str] = set()
        self.imports: dict[str, set[str]] = {}
        self._is_settings = is_settings
        self._depth = 0
        """Of functions and classes around what is read."""

    def read(self, node: object) -> None:
        """Read a tree, or a part of one."""
        if isinstance(node, list):
            for each in node:
                self.read(each)
        elif not isinstance(node, ast.AST):
            self.text.append(f" {node!r}")
        elif not is_prose(node):
            special = getattr(self, f"_{type(node).__name__}", self._fields)
            self.text.append(f"({type(node).__name__}")
            special(node)
            self.text.append(")")

    def _fields(self, node: ast.AST, *without: str) -> None:
        for name, value in ast.iter_fields(node):
            if value is not None and value != [] and name not in _IGNORED and name not in without:
                self.text.append(f" {name}=")
                self.read(value)

    def _inside(self, node: ast.AST, *without: str) -> None:
        self._depth += 1
        self._fields(node, *without)
        self._depth -= 1

    _FunctionDef = _AsyncFunctionDef = _Lambda = _inside

    def _arg(self, node: ast.arg) -> None:
        self.text.append(node.arg)

    def _ClassDef(self, node: ast.ClassDef) -> None:  # noqa: N802
        self._inside(node, "body")
        self._depth += 1
        settings = self._is_settings(node)
        for statement in node.body:
            if not isinstance(statement, ast.AnnAssign):
                self.read(statement)
            elif not settings or "ClassVar" in ast.unparse(statement.annotation):
                self._field(statement)
        self._depth -= 1

    def _field(self, node: ast.AnnAssign) -> None:
        """The type of a field may decide what its class does with it; what the type is made of does not."""
        kind = Reader(self._is_settings)
        kind.read(node.annotation)
        self.text += kind.text
        self._AnnAssign(node)

    def _AnnAssign(self, node: ast.AnnAssign) -> None:  # noqa: N802
        self._fields(node, "annotation")

    def _Import(self, node: ast.Import | ast.ImportFrom) -> None:  # noqa: N802
        bind(node, self.imports)
        self._fields(node)

    _ImportFrom = _Import

    def _Compare(self, node: ast.Compare) -> None:  # noqa: N802
        self._fields(node, "left", "comparators")
        self._choosing_nothing([node.left, *node.comparators])

    def _Dict(self, node: ast.Dict) -> None:  # noqa: N802
        self._choosing_nothing(node.keys)
        self._fields(node, "keys")

    def _Call(self, node: ast.Call) -> None:  # noqa: N802
        of_attributes = dotted(node.func) in ("getattr", "hasattr", "setattr")
        self._fields(node, *(["args"] if of_attributes else []))
        if of_attributes:
            self._choosing_nothing(node.args)

    def _choosing_nothing(self, nodes: Iterable[ast.expr | None]) -> None:
        """Read what names no entry of a table, where it is a string: what is compared, or names an attribute."""
        for node in nodes:
            if isinstance(node, ast.Constant):
                self.text.append(f" {node.value!r}")
            else:
                self.read(node)

    def _Raise(self, node: ast.Raise) -> None:  # noqa: N802
        self.read(node.exc.func if isinstance(node.exc, ast.Call) else node.exc)

    def _Assert(self, node: ast.Assert) -> None:  # noqa: N802
        self.read(node.test)

    def _Name(self, node: ast.Name) -> None:  # noqa: N802
        self.text.append(node.id)
        self.names.add(node.id)

    def _Attribute(self, node: ast.Attribute) -> None:  # noqa: N802
        if name := dotted(node):
            self.text.append(name)
            self.names.add(name)
        else:
            self._fields(node)

    def _Constant(self, node: ast.Constant) -> None:  # noqa: N802
        self.text.append(f"{type(node.value).__name__} {node.value!r}")
        if self._depth and isinstance(node.value, str):
            self.strings.add(node.value)


def is_prose(node: ast.AST) -> bool:
    """Whether it is a string that nothing takes: a docstring, of a module, class, function, or of what is assigned."""
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


def dotted(node: ast.expr) -> str:
    """`module.name`; empty, where what stands before the dot is no name."""
    if isinstance(node, ast.Name):
        return node.id
    before = dotted(node.value) if isinstance(node, ast.Attribute) else ""
    return f"{before}.{node.attr}" if before and isinstance(node, ast.Attribute) else ""


def bind(node: ast.AST, names: dict[str, set[str]]) -> None:
    """Note the names that an import gives, and what each stands for."""
    if isinstance(node, ast.Import):
        for alias in node.names:
            name = alias.asname or alias.name.partition(".")[0]
            names.setdefault(name, set()).add(alias.name if alias.asname else name)
    elif isinstance(node, ast.ImportFrom):
        assert node.level == 0, f"an import from {'.' * node.level}{node.module or ''} is not followed"
        for alias in node.names:
            assert alias.name != "*", f"all names of {node.module} are not followed"
            names.setdefault(alias.asname or alias.name, set()).add(f"{node.module}.{alias.name}")


def given(statement: ast.stmt) -> set[str]:
    """Names that a statement gives, however deep in it."""
    nodes = list(ast.walk(statement))
    defined = {node.name for node in nodes if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)}
    return defined | {node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}


def assigned(statement: ast.stmt) -> list[str]:
    """Names that an assignment gives; none, where it is no assignment, or sets something else, too."""
    if isinstance(statement, ast.AnnAssign):
        targets: list[ast.expr] = [statement.target]
    elif isinstance(statement, ast.Assign):
        targets = statement.targets
    else:
        return []
    flat = [each for target in targets for each in (target.elts if isinstance(target, ast.Tuple) else [target])]
    names = [target.id for target in flat if isinstance(target, ast.Name)]
    return names if len(names) == len(flat) else []


def keyed(statement: ast.stmt) -> tuple[dict[str, ast.expr], Sequence[ast.AST]]:
    """The entries of an assigned dict or set whose keys are strings, and what else the statement says."""
    value = getattr(statement, "value", None) if isinstance(statement, ast.Assign | ast.AnnAssign) else None
    if isinstance(value, ast.Dict):
        pairs = list(zip(value.keys, value.values, strict=True))
    else:
        pairs = [(member, member) for member in _members(value)]
    keys = {key.value: each for key, each in pairs if isinstance(key, ast.Constant) and isinstance(key.value, str)}
    rest = [each for key, each in pairs if key is None]
    if not keys or len(keys) + len(rest) < len(pairs):
        return {}, [statement]
    targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]  # type: ignore[attr-defined]
    return keys, [*targets, *rest]


def _members(value: ast.AST | None) -> list[ast.expr]:
    """Of a set as it is written: `{"a", "b"}` or `frozenset(("a", "b"))`."""
    if isinstance(value, ast.Call) and dotted(value.func) in ("set", "frozenset") and len(value.args) == 1:
        value = value.args[0]
        return value.elts if isinstance(value, ast.Tuple | ast.List | ast.Set) else []
    return value.elts if isinstance(value, ast.Set) else []
