"""Every small fault that could be put into a source file, and the lines that execute it."""

import ast
import copy
import random
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.program import ROOMS

SWAPPED: dict[type[ast.AST], type[ast.AST]] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In, ast.And: ast.Or, ast.Or: ast.And,
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult, ast.FloorDiv: ast.Mult,
    ast.Pow: ast.Mult, ast.BitAnd: ast.BitOr, ast.BitOr: ast.BitAnd,
}  # fmt: skip
"""Operators, each with what is put in its place."""

DROPPED = {
    "abs", "bool", "clamp", "clone", "contiguous", "copy", "detach", "double", "eval", "exp", "float", "int", "log",
    "long", "lower", "neg", "relu", "resolve", "reversed", "round", "set", "sigmoid", "sorted", "sqrt", "strip", "t",
    "tanh", "train",
}  # fmt: skip
"""Functions and methods that give what can stand for their argument."""

TWINS = {"min": "max", "max": "min", "any": "all", "all": "any", "amin": "amax", "amax": "amin"}
SAYS = {"UserError", "print", "warn", "say", "echo"}
"""Functions that get text alone."""
FORM = {"encoding", "strict", "indent", "newline", "ensure_ascii", "exist_ok", "parents", "description", "help"}
"""Arguments that change no number and no state, and those that cannot change any in these sources."""


@dataclass(frozen=True)
class Fault:
    """A piece of a file and what is put in its place.

    Args:
        start, end: places of the piece, in bytes.
        executed: lines by file; a test that executes none of them cannot notice.
    """

    file: str
    line: int
    start: int
    end: int
    piece: str
    executed: dict[str, set[int]]

    def text(self, source: bytes) -> bytes:
        """The file with the fault."""
        return source[: self.start] + self.piece.encode() + source[self.end :]


Site = tuple[ast.AST, tuple[ast.AST, ...], ast.AST]
"""A node, the nodes above it, and the node with a fault."""


class Sources:
    """The files of a checkout's rooms."""

    def __init__(self, root: Path) -> None:
        paths = [path for room in ROOMS for path in sorted((root / room).rglob("*.py"))]
        self.root = root
        self.trees = {str(path.relative_to(root)): ast.parse(path.read_bytes()) for path in paths}
        self.imports: set[str] = set()
        self.readers: dict[str, dict[str, set[int]]] = {}
        for file, tree in self.trees.items():
            for node in ast.walk(tree):
                if isinstance(node, ast.ImportFrom):
                    self.imports.add(node.module or "")
                elif isinstance(node, ast.Import):
                    self.imports.update(alias.name for alias in node.names)
                elif name := _name(node):
                    self.readers.setdefault(name, {}).setdefault(file, set()).add(node.lineno)

    def draw(self, rooms: Iterable[str], count: int, seed: int) -> list[Fault]:
        """So many faults in rooms or files: a line is as likely as any other, however many faults it may have."""
        chance, rooms = random.Random(seed), tuple(rooms)
        by_line: dict[tuple[str, int], list[Site]] = {}
        for file, tree in self.trees.items():
            if file.startswith(rooms):
                for site in _sites(tree):
                    by_line.setdefault((file, site[0].lineno), []).append(site)
        drawn = chance.sample(sorted(by_line), min(count, len(by_line)))
        return [self._fault(file, *chance.choice(by_line[file, line])) for file, line in drawn]

    def _fault(self, file: str, node: ast.AST, above: tuple[ast.AST, ...], variant: ast.AST) -> Fault:
        lines = (self.root / file).read_bytes().splitlines(keepends=True)
        start = sum(map(len, lines[: node.lineno - 1])) + node.col_offset
        end = sum(map(len, lines[: node.end_lineno - 1])) + node.end_col_offset
        piece = ast.unparse(variant)
        piece = piece if isinstance(variant, ast.stmt | ast.Constant | ast.Dict) else f"({piece})"
        return Fault(file, node.lineno, start, end, piece, self._executed(file, (*above, node)))

    def _executed(self, file: str, path: tuple[ast.AST, ...]) -> dict[str, set[int]]:
        """The lines of the node's statement; of a constant or a default, those that read it."""
        node = path[-1]
        statement = next(node for node in reversed(path) if isinstance(node, ast.stmt))
        if isinstance(statement, ast.FunctionDef):
            return {file: {line for inner in statement.body for line in range(inner.lineno, inner.end_lineno + 1)}}
        executed = {file: set(range(statement.lineno, node.end_lineno + 1))}
        if not any(isinstance(node, ast.FunctionDef) for node in path):
            targets = getattr(statement, "targets", None) or [getattr(statement, "target", None)]
            names = [name for target in targets if target for name in ast.walk(target) if isinstance(name, ast.Name)]
            for name in (name.id for name in names):
                for reader, lines in self.readers.get(name, {}).items():
                    executed[reader] = executed.get(reader, set()) | lines
        return executed


def _sites(tree: ast.AST) -> Iterator[Site]:
    for node, above in _computing(tree):
        for variant in _variants(node, above[-1] if above else None):
            yield node, above, variant


def _computing(node: ast.AST, above: tuple[ast.AST, ...] = ()) -> Iterator[tuple[ast.AST, tuple[ast.AST, ...]]]:
    """Expressions and statements with the nodes above them, without annotations, messages and decorators."""
    if isinstance(node, ast.expr | ast.stmt):
        yield node, above
    if isinstance(node, ast.JoinedStr | ast.Raise | ast.Assert) or _name(getattr(node, "func", None)) in SAYS:
        return
    if isinstance(node, ast.keyword) and node.arg in FORM:
        return
    for field, value in ast.iter_fields(node):
        if field not in ("annotation", "returns", "decorator_list", "bases"):
            for child in value if isinstance(value, list) else [value]:
                if isinstance(child, ast.AST):
                    yield from _computing(child, (*above, node))


def _variants(node: ast.AST, parent: ast.AST | None) -> Iterator[ast.AST]:
    """The node with one fault."""
    match node:
        case ast.Compare(ops=[op]) if type(op) in SWAPPED:
            yield _with(node, ops=[SWAPPED[type(op)]()])
        case ast.BinOp(left=left, op=op, right=right) if type(op) in SWAPPED and not _is_text_or_type(left, right):
            yield _with(node, op=SWAPPED[type(op)]())
        case ast.BoolOp(op=op):
            yield _with(node, op=SWAPPED[type(op)]())
        case ast.UnaryOp(op=ast.Not() | ast.USub(), operand=operand):
            yield operand
        case ast.Constant(value=bool() as value):
            yield ast.Constant(not value)
        case ast.Constant(value=int() as value):
            yield ast.Constant(value + 1)
        case ast.Constant(value=float() as value):
            yield ast.Constant(value * 1.001 or 0.001)
        case ast.Call(func=function, args=arguments, keywords=keywords) if _name(function) not in SAYS:
            if _name(function) in TWINS:
                renamed = {"id" if isinstance(function, ast.Name) else "attr": TWINS[_name(function)]}
                yield _with(node, func=_with(function, **renamed))
            for keyword in keywords:
                if keyword.arg and keyword.arg not in FORM:
                    yield _with(node, keywords=[other for other in keywords if other is not keyword])
            match arguments:
                case [ast.Starred(), *_] | [_, ast.Starred(), *_]:
                    pass
                case [first, second, *rest] if ast.dump(first) != ast.dump(second):
                    yield _with(node, args=[second, first, *rest])
            if _name(function) in DROPPED and (arguments or isinstance(function, ast.Attribute)):
                yield arguments[0] if arguments else function.value
        case ast.Dict(values=[first, second, *rest]) if ast.dump(first) != ast.dump(second):
            yield _with(node, values=[second, first, *rest])
        case ast.Expr(value=ast.Call(func=function)) if _name(function) not in SAYS:
            yield ast.Pass()
        case ast.AugAssign() | ast.Assign(targets=[ast.Attribute() | ast.Subscript()]):
            yield ast.Pass()
    if node is getattr(parent, "test", None) or node in getattr(parent, "ifs", []):
        yield ast.UnaryOp(ast.Not(), node)


def _with(node: ast.AST, **fields: object) -> ast.AST:
    changed = copy.copy(node)
    for name, value in fields.items():
        setattr(changed, name, value)
    return changed


def _name(function: ast.AST | None) -> str:
    return getattr(function, "id", None) or getattr(function, "attr", None) or ""


def _is_text_or_type(*operands: ast.AST) -> bool:
    """Whether an operator joins text or parts of a path, or `|` types."""
    return any(
        isinstance(operand, ast.JoinedStr)
        or (isinstance(operand, ast.Constant) and (operand.value is None or isinstance(operand.value, str)))
        or _name(operand) in ("int", "str", "float", "bool", "bytes")
        or (_name(operand)[:1].isupper() and not _name(operand).isupper())
        for operand in operands
    )
