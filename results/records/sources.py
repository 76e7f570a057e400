"""The code that a computation reaches, read from the sources: a graph of definitions, followed from its roots.

A definition is a function, a class or an assignment at the top of a module. Edges go to every definition it names; an
unresolved name pulls in its whole module. Of a table, a dict whose keys are all names that settings may hold, only the
entries count that the settings name, or a string in the code that is used; so with what decorators declare under such
names. A string that spells a definition, "retrieval.features.Features", is a name of it. Comments, docstrings, messages
of errors, annotations, and the fields of settings, whose values are in a trial's identity, are no part of a definition;
nor are the names of a function's locals, which `scopes` replaces by their places.
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
"""The form of a string that spells a definition: dotted identifiers."""

_NAMED = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


@dataclass(eq=False)
class Definition:
    """A function, class or assignment at the top of a module, or an entry of a table."""

    name: str
    module: "Module"
    nodes: list[ast.AST] = field(default_factory=list)
    """Its syntax trees, without the entries of a table."""
    entries: dict[str, "Definition"] = field(default_factory=dict)
    """The entries of a table, by key; of the statements of a module, what it declares under names."""

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
        """SHA-256 of its text; a string that spells a definition counts by the definition's text, not by its place."""
        return self._digest(lambda spelt: spelt._plain)

    @cached_property
    def _plain(self) -> str:
        """The same, where spelt definitions count by their last names: definitions may spell one another in a cycle."""
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
        """The definitions that it names, and the statements that run when its module is imported."""
        # importing the module for this name runs its statements, which may patch or register something
        definitions = {self.module.effects} | self.module.named_in(self._counted)
        return definitions | self.module.run_on_import if self is self.module.effects else definitions

    @cached_property
    def line(self) -> str:
        """Its digest, and of each name in it the digests of its definitions, or outside the project the dotted name."""
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
        """The dotted names for each name that the module defines, or imports anywhere."""
        self.imports: set[str] = set()
        """Modules and names whose modules are run when this module is imported."""
        self.definitions: dict[str, Definition] = {}
        self.effects = Definition(f"{name}, its statements", self)
        """The statements that do more than define names when the module is imported."""
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
        """The statements of all modules that are imported with this one, and the definitions with a decorator.

        A decorator of the project may keep its definition where no name leads to it; not if it declares a name.
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
        """Return the names in syntax trees, with what they mean: `HINGE` with `objectives.hinge.HINGE`."""
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
    """A project's modules by dotted name, each parsed once; a dict whose keys are all among `names` is a table."""

    def __init__(self, texts: Mapping[str, bytes], names: frozenset[str]) -> None:
        self._texts, self.names = texts, names
        self._packages = {name.rpartition(".")[0] for name in texts}
        self.module, self.resolve = cache(self._module), cache(self._resolve)

    def is_package(self, name: str) -> bool:
        """Whether a module has others below it, so that relative imports in it begin there."""
        return name in self._packages

    def spelt(self, constant: object) -> Definition | None:
        if not isinstance(constant, str) or not SPELT.fullmatch(constant):
            return None
        place, _, last = constant.rpartition(".")
        module = self.module(place)
        return module.definitions.get(last) if module else None

    def fingerprint(self, roots: Iterable[str], named: Iterable[str]) -> str:
        """SHA-256 over all reached definitions. Moving definitions to other modules does not change it."""
        # sorted by digest, not by place, so that a move changes nothing
        lines = sorted(definition.line for definition in self.reached(roots, named) if definition.nodes)
        return hashlib.sha256("\n".join(lines).encode()).hexdigest()

    def reached(self, roots: Iterable[str], named: Iterable[str]) -> set[Definition]:
        """The definitions that are used from these roots, if settings hold the strings `named`."""
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
        """The definitions of a dotted name: the whole module if it names a module; none outside the project."""
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
    """Return the source of each module below the folders of top-level packages, by the module's dotted name."""
    files = ((name, folder, file) for name, folder in packages.items() for file in sorted(folder.rglob("*.py")))
    return {
        ".".join([name, *file.relative_to(folder).with_suffix("").parts]).removesuffix(".__init__"): file.read_bytes()
        for name, folder, file in files
    }


@cache
def _parsed(text: bytes) -> ast.Module:
    """The parts of a source that may change numbers. No caller changes the tree, so projects share it."""
    tree: ast.Module = _Stripped().visit(ast.parse(text))
    return tree


class _Stripped(ast.NodeTransformer):
    """Removes the parts that change no number: docstrings, annotations, and messages of errors."""

    in_function = False
    """Whether the present statements are a function's own, not those of a class in it."""

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
        """A local or a constant of a class becomes a plain assignment, so that only fields of settings have another."""
        if self.in_function or (node.value and "ClassVar" in ast.unparse(node.annotation)):
            return self.generic_visit(ast.Assign([node.target], node.value)) if node.value else None
        return self.generic_visit(node)


def _without_fields(node: ast.AST) -> ast.AST:
    """A class of settings without the fields, whose values stand in a trial's identity, and without their checks."""
    if not isinstance(node, ast.ClassDef):
        return node
    body = [statement for statement in node.body if not isinstance(statement, ast.AnnAssign) and not _checks(statement)]
    return ast.ClassDef(node.name, node.bases, node.keywords, body, node.decorator_list)


def _checks(statement: ast.stmt) -> bool:
    names = {name for decorator in getattr(statement, "decorator_list", ()) for name in _names(decorator)}
    return not VALIDATORS.isdisjoint(names)


def _text(node: object, value_text: Callable[[object], str]) -> str:
    """A syntax tree as text, which unlike that of `ast.dump` is the same under every version of Python."""
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
    """The dotted names in a syntax tree, the longest of each chain, and the strings."""
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
    """`module.name`; empty if the part before the dot is not a name."""
    if isinstance(node, ast.Attribute) and (before := _dotted(node.value)):
        return f"{before}.{node.attr}"
    return node.id if isinstance(node, ast.Name) else ""


def _strings(node: ast.AST, *, inside: bool = False) -> Iterator[str]:
    """The strings in functions and classes that may choose an entry of a table."""
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
    """Whether a string may choose an entry: not if it is compared, is a dict's key or names an attribute."""
    if isinstance(node, ast.Call):
        return _dotted(node.func) not in ("getattr", "hasattr", "setattr")
    return not isinstance(node, ast.Compare) and not (isinstance(node, ast.Dict) and string in node.keys)


def _statements(node: ast.AST) -> Iterator[ast.AST]:
    """A module or statement, and the statements in it, without a look into expressions."""
    yield node
    for name in ("body", "handlers", "orelse", "finalbody", "cases"):
        for part in getattr(node, name, ()):
            yield from _statements(part)


@cache
def _imported(tree: ast.AST, package: str) -> frozenset[tuple[str, str]]:
    """The names that the imports in a syntax tree define, with the dotted names that they stand for."""
    nodes = (node for node in _statements(tree) if isinstance(node, Import))
    return frozenset(pair for node in nodes for pair in imported(node, package))


def _declared(statement: ast.stmt) -> set[str]:
    """The names under which the decorators of a function or class may declare it: their first arguments."""
    calls = (decorator for decorator in getattr(statement, "decorator_list", ()) if isinstance(decorator, ast.Call))
    firsts = (call.args[0] for call in calls if call.args)
    return {first.value for first in firsts if isinstance(first, ast.Constant) and isinstance(first.value, str)}


def _targets(statement: ast.stmt) -> list[ast.expr]:
    if isinstance(statement, ast.Assign):
        return statement.targets
    return [statement.target] if isinstance(statement, ast.AnnAssign) else []


def _given(statement: ast.stmt) -> set[str]:
    """Names that a statement at the top of a module gives, however deep in it."""
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
    """The entries of an assigned table, and the statement's other nodes."""
    value = statement.value if isinstance(statement, ast.Assign | ast.AnnAssign) else None
    if not isinstance(value, ast.Dict):
        return {}, [statement]
    pairs = list(zip(value.keys, value.values, strict=True))
    entries = {str(key.value): node for key, node in pairs if isinstance(key, ast.Constant)}
    others = [node for key, node in pairs if key is None]
    if not entries.keys() <= names or len(entries) + len(others) < len(pairs):
        return {}, [statement]
    return entries, [*_targets(statement), *others]
