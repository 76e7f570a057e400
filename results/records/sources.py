"""Finds and fingerprints the code that a computation depends on: a graph of definitions, followed from its roots.

A definition is a function, class or assignment at the top level of a module. Edges go to every definition that it
names; an unresolved name pulls in its whole module. A table is a dict whose keys are all names that settings may hold:
only entries named by the settings, or by a string in reached code, are followed. The same holds for definitions that
decorators register under such names. A string that spells a definition, e.g. "retrieval.features.Features", counts as
its name. Not part of a definition are comments, docstrings, error messages, annotations, fields of settings classes
(their values are in the trial's identity), and names of local variables (`scopes` makes them canonical).
"""

import ast
import hashlib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache, cached_property
from pathlib import Path

from goalgrid.grid.imports import Import, NotFollowed, imported
from goalgrid.results.records.scopes import canonical

SETTINGS = "pydantic.BaseModel"

VALIDATORS = frozenset({"field_validator", "model_validator"})

SPELT = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)+")
"""Pattern of a string that spells a definition: dotted identifiers."""

_NAMED = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


@dataclass(eq=False)
class Definition:
    """A function, class or assignment at the top level of a module, or an entry of a table."""

    name: str
    module: "Module"
    nodes: list[ast.AST] = field(default_factory=list)
    """Syntax trees of the definition, without the entries of a table."""
    entries: dict[str, "Definition"] = field(default_factory=dict)
    """Entries of a table by key; for a module's statements, the definitions that decorators register, by name."""

    @cached_property
    def is_settings(self) -> bool:
        bases = [base for node in self.nodes if isinstance(node, ast.ClassDef) for base in node.bases]
        names = self.module.meanings(bases).values()
        # pydantic is outside the project, so its class has no definition and is known by its name alone
        return [SETTINGS] in names or any(base.is_settings for base in self.module.named_in(bases))

    @cached_property
    def _counted(self) -> list[ast.AST]:
        return [canonical(_without_fields(node) if self.is_settings else node) for node in self.nodes]

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the definition; a string that spells a definition is replaced by that definition's hash."""
        return self._digest(lambda spelt: spelt._plain)

    @cached_property
    def _plain(self) -> str:
        """Like `digest`, but with only the last names of spelled definitions, which may refer to each other."""
        return self._digest(lambda spelt: spelt.name.rpartition(".")[2])

    def _digest(self, meant: Callable[["Definition"], str]) -> str:
        def value(constant: object) -> str:
            spelt = self.module.sources.spelt(constant)
            return meant(spelt) if spelt else repr(constant)

        return hashlib.sha256(_text(self._counted, value).encode()).hexdigest()

    @cached_property
    def strings(self) -> frozenset[str]:
        return frozenset(string for node in self._counted for string in _strings(node))

    @cached_property
    def leads_to(self) -> "set[Definition]":
        """The definitions that this one names, and the statements that run when its module is imported."""
        # importing the module for this name runs its statements, which may patch or register something
        definitions = {self.module.effects} | self.module.named_in(self._counted)
        return definitions | self.module.run_on_import if self is self.module.effects else definitions

    @cached_property
    def line(self) -> str:
        """Its digest, then for each name in it the digests of its definitions (dotted name if outside the project)."""
        resolve = self.module.sources.resolve
        meant = {
            name: sorted(text for target in targets for text in [place.digest for place in resolve(target)] or [target])
            for name, targets in self.module.meanings(self._counted).items()
        }
        return " ".join([self.digest, *(f"{name}={','.join(texts)}" for name, texts in meant.items())])


class Module:
    def __init__(self, name: str, text: bytes, sources: "Sources") -> None:
        self.name, self.sources = name, sources
        self.bindings: dict[str, set[str]] = {}
        """For each name that the module defines or imports (at any depth): the dotted names that it may refer to."""
        self.imports: set[str] = set()
        """Modules, and names from modules, that are imported together with this module."""
        self.definitions: dict[str, Definition] = {}
        self.effects = Definition(f"{name}, its statements", self)
        """The module's top-level statements that do more than define names."""
        tree, self._package = _parsed(text), name if sources.is_package(name) else name.rpartition(".")[0]
        try:
            pairs = _imported(tree, self._package)  # also inside functions: imports are late where torch is heavy
        except NotFollowed as error:
            raise NotFollowed(f"{name}: {error} cannot be followed") from None
        for alias, target in pairs:
            self.bindings.setdefault(alias, set()).add(target)
        for statement in tree.body:
            self._take(statement)

    def _take(self, statement: ast.stmt) -> None:
        if not isinstance(statement, _NAMED):  # an import inside a function runs only with the function
            imports = (node for node in _statements(statement) if isinstance(node, ast.Import))
            modules = {alias.name for node in imports for alias in node.names}
            self.imports |= modules | {target for _, target in _imported(statement, self._package)}
        if _has_effect(statement):
            self.effects.nodes.append(statement)
        entries, others = _keyed(statement, self.sources.names)
        declared = _declared(statement) & self.sources.names
        for name in _given(statement):
            definition = self.definitions.setdefault(name, Definition(f"{self.name}.{name}", self))
            self.bindings.setdefault(name, set()).add(definition.name)
            definition.nodes += others  # several statements may give one name: all of them count
            self.effects.entries.update(dict.fromkeys(declared, definition))
            for key, node in entries.items():
                label = f"{name}[{key!r}]"  # in the text, so that two keys cannot swap their values unnoticed
                definition.entries[key] = Definition(f"{self.name}.{label}", self, [ast.Constant(label), node])

    @property
    def everything(self) -> set[Definition]:
        return {self.effects, *self.definitions.values()}

    @property
    def run_on_import(self) -> set[Definition]:
        """The statements of all modules that are imported with this one, and this module's decorated definitions.

        The project's decorators may register a definition that is never named elsewhere. Definitions registered under
        a name are excluded: they are followed only if the name is used.
        """
        parts = [name.split(".") for name in (self.name, *self.imports)]
        # importing a.b.c runs a and a.b too
        names = {".".join(part[:end]) for part in parts for end in range(1, len(part) + 1)}
        decorators = {
            definition: [decorator for node in definition.nodes for decorator in getattr(node, "decorator_list", ())]
            for definition in self.everything - set(self.effects.entries.values())
        }
        registered = {definition for definition, decorator in decorators.items() if self.named_in(decorator)}
        return registered | {other.effects for name in names if (other := self.sources.module(name))}

    def meanings(self, nodes: Iterable[ast.AST]) -> dict[str, list[str]]:
        """Map each name in the trees to the dotted names it may refer to, e.g. `HINGE` to `objectives.hinge.HINGE`."""
        meanings: dict[str, list[str]] = {}
        for name in sorted({name for node in nodes for name in _names(node)}):
            first, dot, rest = name.partition(".")
            if first in self.bindings:
                meanings[name] = sorted(f"{place}{dot}{rest}" for place in self.bindings[first])
        return meanings

    def named_in(self, nodes: Iterable[ast.AST]) -> set[Definition]:
        nodes = list(nodes)
        names = {name for targets in self.meanings(nodes).values() for name in targets}
        constants = (constant for node in nodes for constant in _constants(node))
        spelt = {definition for constant in constants if (definition := self.sources.spelt(constant))}
        return spelt.union(*map(self.sources.resolve, names))


class Sources:
    """A project's modules by dotted name, each parsed once; dicts whose keys are all in `names` are tables."""

    def __init__(self, texts: Mapping[str, bytes], names: frozenset[str]) -> None:
        self._texts, self.names = texts, names
        self._packages = {name.rpartition(".")[0] for name in texts}
        self.module, self.resolve = cache(self._module), cache(self._resolve)

    def is_package(self, name: str) -> bool:
        """Return whether the module is a package, so that relative imports start from it."""
        return name in self._packages

    def spelt(self, constant: object) -> Definition | None:
        if not isinstance(constant, str) or not SPELT.fullmatch(constant):
            return None
        place, _, last = constant.rpartition(".")
        module = self.module(place)
        return module.definitions.get(last) if module else None

    def fingerprint(self, roots: Iterable[str], named: Iterable[str]) -> str:
        """Return the SHA-256 of all reached definitions; moving definitions to other modules does not change it."""
        # sorted by digest, not by place, so that a move changes nothing
        lines = sorted(definition.line for definition in self.reached(roots, named) if definition.nodes)
        return hashlib.sha256("\n".join(lines).encode()).hexdigest()

    def reached(self, roots: Iterable[str], named: Iterable[str]) -> set[Definition]:
        """Return the definitions reached from these roots, given the strings in the settings (`named`)."""
        strings, reached = set(named), set[Definition]()
        ahead = [self._root(root) for root in roots]
        waiting: dict[str, list[Definition]] = {}  # entries of tables that nothing has named yet
        while ahead:
            definition = ahead.pop()
            if definition in reached:
                continue
            reached.add(definition)
            ahead += definition.leads_to
            for string in definition.strings - strings:  # a new string may name an entry that was passed before
                strings.add(string)
                ahead += waiting.pop(string, [])
            for key, entry in definition.entries.items():
                (ahead if key in strings else waiting.setdefault(key, [])).append(entry)
        return reached

    def _root(self, name: str) -> Definition:
        place, _, last = name.rpartition(".")
        module = self.module(place)
        assert module, f"no source of {place}"
        return module.definitions[last]

    def _resolve(self, name: str) -> set[Definition]:
        """Return the definitions of a dotted name: all of the module if it is a module; none if outside the project."""
        parts = name.split(".")
        place = next((end for end in range(len(parts), 0, -1) if self.module(".".join(parts[:end]))), 0)
        module, rest = self.module(".".join(parts[:place])), parts[place:]
        if module is None:
            return set()
        if rest and rest[0] in module.definitions:
            return {module.definitions[rest[0]]}
        if rest and rest[0] in module.bindings:
            return set().union(*(self.resolve(".".join([target, *rest[1:]])) for target in module.bindings[rest[0]]))
        return module.everything

    def _module(self, name: str) -> Module | None:
        text = self._texts.get(name)
        return None if text is None else Module(name, text, self)


def texts_of(packages: Mapping[str, Path]) -> dict[str, bytes]:
    """Return the source code of all modules in these packages, by dotted module name."""
    files = ((name, folder, file) for name, folder in packages.items() for file in sorted(folder.rglob("*.py")))
    return {
        ".".join([name, *file.relative_to(folder).with_suffix("").parts]).removesuffix(".__init__"): file.read_bytes()
        for name, folder, file in files
    }


@cache
def _parsed(text: bytes) -> ast.Module:
    """Parse a source and keep only the parts that may affect results; callers must not modify the shared tree."""
    tree: ast.Module = _Stripped().visit(ast.parse(text))
    return tree


class _Stripped(ast.NodeTransformer):
    """Removes the parts that cannot affect results: docstrings, annotations and error messages."""

    in_function = False
    """Whether the visited statements belong directly to a function, not to a class."""

    def generic_visit(self, node: ast.AST) -> ast.AST:
        for name in {"annotation", "returns", "msg"}.intersection(node._fields):
            setattr(node, name, None)
        around = self.in_function
        if isinstance(node, _NAMED):
            self.in_function = not isinstance(node, ast.ClassDef)
        node = super().generic_visit(node)
        self.in_function = around
        return node

    def visit_Name(self, node: ast.Name) -> ast.AST:
        return node  # nothing is below it, and names are what there is most of

    def visit_Expr(self, node: ast.Expr) -> ast.AST | None:
        is_prose = isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
        return None if is_prose else self.generic_visit(node)

    def visit_Raise(self, node: ast.Raise) -> ast.AST:
        error = node.exc.func if isinstance(node.exc, ast.Call) else node.exc
        return self.generic_visit(ast.Raise(error))

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST | None:
        """Convert locals and class constants to plain assignments: only settings fields stay annotated assignments."""
        if self.in_function or (node.value and "ClassVar" in ast.unparse(node.annotation)):
            return self.generic_visit(ast.Assign([node.target], node.value)) if node.value else None
        return self.generic_visit(node)


def _without_fields(node: ast.AST) -> ast.AST:
    """Return a settings class without its fields (their values are in the trial's identity) and validators."""
    if not isinstance(node, ast.ClassDef):
        return node
    body = [statement for statement in node.body if not isinstance(statement, ast.AnnAssign) and not _checks(statement)]
    return ast.ClassDef(node.name, node.bases, node.keywords, body, node.decorator_list)


def _checks(statement: ast.stmt) -> bool:
    names = {name for decorator in getattr(statement, "decorator_list", ()) for name in _names(decorator)}
    return not VALIDATORS.isdisjoint(names)


def _text(node: object, value_text: Callable[[object], str]) -> str:
    """Return a syntax tree as text that, unlike `ast.dump`, is the same for all Python versions."""
    if isinstance(node, list):
        return ",".join(_text(part, value_text) for part in node)
    if not isinstance(node, ast.AST):
        return value_text(node)
    if isinstance(node, ast.ImportFrom):  # the digests of its names cover the place, which may move
        return _text(node.names, value_text)
    # newer versions of Python add empty fields, e.g. type_params
    fields = ((name, value) for name, value in ast.iter_fields(node) if value is not None and value != [])
    parts = (f" {name}={_text(value, value_text)}" for name, value in fields)
    return f"({type(node).__name__}{''.join(parts)})"


def _names(node: ast.AST) -> frozenset[str]:
    return _names_and_strings(node)[0]


def _constants(node: ast.AST) -> frozenset[str]:
    return _names_and_strings(node)[1]


@cache
def _names_and_strings(node: ast.AST) -> tuple[frozenset[str], frozenset[str]]:
    """Return the dotted names in a syntax tree (only the longest of each chain), and the strings."""
    names, strings, ahead = set[str](), set[str](), [node]
    while ahead:
        part = ahead.pop()
        if isinstance(part, ast.Constant):
            strings |= {part.value} if isinstance(part.value, str) else set()
        elif name := _dotted(part):
            names.add(name)
        else:
            ahead += ast.iter_child_nodes(part)
    return frozenset(names), frozenset(strings)


def _dotted(node: ast.AST) -> str:
    """Return a dotted name, e.g. `module.name`; empty if the node is not a chain of names."""
    if isinstance(node, ast.Attribute) and (before := _dotted(node.value)):
        return f"{before}.{node.attr}"
    return node.id if isinstance(node, ast.Name) else ""


def _strings(node: ast.AST, *, inside: bool = False) -> Iterator[str]:
    """Yield the strings in functions and classes that may select an entry of a table."""
    inside = inside or isinstance(node, (*_NAMED, ast.Lambda))
    decorators = getattr(node, "decorator_list", ())
    for part in ast.iter_child_nodes(node):
        if part in decorators:  # its strings declare a name and choose none
            continue
        if not isinstance(part, ast.Constant):
            yield from _strings(part, inside=inside)
        elif inside and isinstance(part.value, str) and _may_choose(node, part):
            yield part.value


def _may_choose(node: ast.AST, string: ast.Constant) -> bool:
    """Return whether a string may select a table entry: not if it is compared, a dict key, or an attribute name."""
    if isinstance(node, ast.Call):
        return _dotted(node.func) not in ("getattr", "hasattr", "setattr")
    return not isinstance(node, ast.Compare) and not (isinstance(node, ast.Dict) and string in node.keys)


def _statements(node: ast.AST) -> Iterator[ast.AST]:
    """Yield a module or statement and all statements nested in it, without entering expressions."""
    yield node
    for name in ("body", "handlers", "orelse", "finalbody", "cases"):
        for part in getattr(node, name, ()):
            yield from _statements(part)


@cache
def _imported(tree: ast.AST, package: str) -> frozenset[tuple[str, str]]:
    """Return the names that imports in a syntax tree define, each with the dotted name it refers to."""
    nodes = (node for node in _statements(tree) if isinstance(node, Import))
    return frozenset(pair for node in nodes for pair in imported(node, package))


def _declared(statement: ast.stmt) -> set[str]:
    """Return the names under which decorators may register a function or class: their first arguments."""
    calls = (decorator for decorator in getattr(statement, "decorator_list", ()) if isinstance(decorator, ast.Call))
    firsts = (call.args[0] for call in calls if call.args)
    return {first.value for first in firsts if isinstance(first, ast.Constant) and isinstance(first.value, str)}


def _targets(statement: ast.stmt) -> list[ast.expr]:
    if isinstance(statement, ast.Assign):
        return statement.targets
    return [statement.target] if isinstance(statement, ast.AnnAssign) else []


def _given(statement: ast.stmt) -> set[str]:
    """Return the names that a top-level statement of a module defines, at any depth."""
    if isinstance(statement, _NAMED):
        return {statement.name}
    parts: Iterable[ast.AST] = _targets(statement) or [statement]
    nodes = [node for part in parts for node in ast.walk(part)]
    defined = {node.name for node in nodes if isinstance(node, _NAMED)}
    return defined | {node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}


def _has_effect(statement: ast.stmt) -> bool:
    if isinstance(statement, (*_NAMED, ast.Import, ast.ImportFrom)):
        return False
    parts = [node for target in _targets(statement) for node in ast.walk(target)]
    return not parts or any(isinstance(node, ast.Attribute | ast.Subscript) for node in parts)


def _keyed(statement: ast.stmt, names: frozenset[str]) -> tuple[dict[str, ast.expr], list[ast.AST]]:
    """Return the entries of a table that the statement assigns, and its other nodes."""
    value = statement.value if isinstance(statement, ast.Assign | ast.AnnAssign) else None
    if not isinstance(value, ast.Dict):
        return {}, [statement]
    pairs = list(zip(value.keys, value.values, strict=True))
    entries = {str(key.value): node for key, node in pairs if isinstance(key, ast.Constant)}
    others = [node for key, node in pairs if key is None]
    if not entries.keys() <= names or len(entries) + len(others) < len(pairs):
        return {}, [statement]
    return entries, [*_targets(statement), *others]
