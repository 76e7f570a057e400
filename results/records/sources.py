"""The code that a computation uses, read from the sources: definitions, followed from where the computation begins.

A definition is what stands at the top of a module: a function, a class, an assignment. It leads to the definitions
whose names it uses, and where a name cannot be told, to a whole module. Nothing is imported, so this costs no torch.

A table is a dict or a set of strings that are all names which settings may hold: `{"con": constant, "nca": nca}`. Of a
table, only the entries count that the settings name, or a string in the code that is used.

Comments, docstrings, what an error says and the annotations of functions and variables are no part of a definition.
Neither are the fields of settings: a trial's identity has their values.
"""

import ast
import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property
from pathlib import Path

from results.records.syntax import Reader, assigned, bind, dotted, given, is_prose, keyed

SETTINGS = "pydantic.BaseModel"
"""What all settings derive from."""


@dataclass(frozen=True)
class Content:
    """What a definition says."""

    digest: str
    """Of its text, in a form that is the same under every version of Python."""
    names: frozenset[str]
    """That it uses, dotted as they stand there."""
    strings: frozenset[str]
    """In functions and classes: they may be keys of a table."""
    imports: Mapping[str, set[str]]
    """What each name stands for that it imports itself."""


@dataclass(frozen=True, eq=False)
class Definition:
    """What stands at the top of a module, or one entry of a table.

    Args:
        nodes: its syntax trees, without those of its entries.
        entries: by key, of what is a table if settings may hold all the keys.
        whole: what counts instead, if it is no table.
    """

    name: str
    module: "Module"
    nodes: Sequence[ast.AST]
    entries: Mapping[str, "Definition"] = field(default_factory=dict)
    whole: "Definition | None" = None

    @cached_property
    def content(self) -> Content:
        reader = Reader(self.module.is_settings)
        for node in self.nodes:
            reader.read(node)
        digest = hashlib.sha256("".join(reader.text).encode()).hexdigest()
        return Content(digest, frozenset(reader.names), frozenset(reader.strings), reader.imports)

    @cached_property
    def uses(self) -> dict[str, list[str]]:
        """Each name that it uses and that comes from elsewhere, with what it stands for: `objectives.hinge.HINGE`."""
        uses: dict[str, list[str]] = {}
        for name in sorted(self.content.names):
            first, dot, rest = name.partition(".")
            found = {*self.content.imports.get(first, ()), *self.module.bindings.get(first, ())}
            if first in self.module.definitions:
                found.add(f"{self.module.name}.{first}")
            if found:
                uses[name] = sorted(f"{target}{dot}{rest}" for target in found)
        return uses


class Module:
    """One source file.

    Args:
        resolve: finds the definitions that a dotted name stands for.
    """

    def __init__(self, name: str, path: Path, resolve: Callable[[str], Sequence[Definition] | None]) -> None:
        self.name, self._resolve = name, resolve
        self.bindings: dict[str, set[str]] = {}
        """What each imported name stands for."""
        self.imports: list[str] = []
        """What is run before it is."""
        self.definitions: dict[str, list[Definition]] = {}
        self._effects: list[ast.AST] = []
        for statement in ast.parse(path.read_bytes()).body:
            self._take(statement)
        self.effects = Definition(f"{name}, its statements", self, self._effects)
        """What happens when it is imported, beside that names are given."""

    @cached_property
    def registered(self) -> list[Definition]:
        """What is handed to a decorator of the project, which may keep it where no name leads to it."""
        return [definition for definition in self.everything if any(map(self._decorates, definition.nodes))]

    def _decorates(self, node: ast.AST) -> bool:
        decorators = Definition("", self, getattr(node, "decorator_list", []))
        return any(self._resolve(target) for targets in decorators.uses.values() for target in targets)

    @property
    def everything(self) -> list[Definition]:
        return [self.effects, *(definition for same in self.definitions.values() for definition in same)]

    def is_settings(self, node: ast.ClassDef) -> bool:
        """Whether a class of this module derives from `SETTINGS`."""
        return any(self._leads_to_settings(base) for base in node.bases)

    def _leads_to_settings(self, base: ast.expr) -> bool:
        used = Definition("", self, [base]).uses
        for target in (target for targets in used.values() for target in targets):
            found = self._resolve(target)
            classes = [node for each in found or () for node in each.nodes if isinstance(node, ast.ClassDef)]
            if target == SETTINGS or any(each.module.is_settings(node) for each in found or () for node in classes):
                return True
        return False

    def _take(self, statement: ast.stmt) -> None:
        if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            self._define([statement.name], statement)
        elif names := assigned(statement):
            self._define(names, statement)
        elif isinstance(statement, ast.Import | ast.ImportFrom):
            self._import(statement)
        elif isinstance(statement, ast.If) and dotted(statement.test).endswith("TYPE_CHECKING"):
            for inner in statement.body:
                bind(inner, self.bindings)
        elif not is_prose(statement):
            self._effects.append(statement)
            for node in ast.walk(statement):
                self._import(node)
            for name in given(statement):
                self._define([name], statement)

    def _import(self, node: ast.AST) -> None:
        bind(node, self.bindings)
        if isinstance(node, ast.Import):
            self.imports += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            self.imports += [f"{node.module}.{alias.name}" for alias in node.names]

    def _define(self, names: Sequence[str], statement: ast.stmt) -> None:
        keys, others = keyed(statement)
        name = f"{self.name}.{names[0]}"
        labels = {key: f"{names[0]}[{key!r}]" for key in keys}
        entries = {
            key: Definition(f"{self.name}.{labels[key]}", self, [ast.Constant(labels[key]), node])
            for key, node in keys.items()
        }
        definition = Definition(name, self, others, entries, Definition(name, self, [statement]) if keys else None)
        for each in names:
            self.definitions.setdefault(each, []).append(definition)


class Sources:
    """A project's modules, each read once, when something leads there.

    Args:
        rooms: folders of the top-level packages; whatever else is imported is none of the project.
        names: that settings may hold: what makes a dict a table.
    """

    def __init__(self, rooms: Mapping[str, Path], names: frozenset[str]) -> None:
        self._rooms, self._names = rooms, names
        self._modules: dict[str, Module | None] = {}
        self._resolved: dict[str, Sequence[Definition] | None] = {}
        self.targets, self.run_by, self._line = cache(self._targets), cache(self._run_by), cache(self._read_line)

    def fingerprint(self, roots: Iterable[str], named: Iterable[str]) -> str:
        """SHA-256 over all that is reached. Moving a definition to another module leaves it as it is."""
        lines = sorted(self._line(definition) for definition in self.reached(roots, named))
        return hashlib.sha256("\n".join(lines).encode()).hexdigest()

    def reached(self, roots: Iterable[str], named: Iterable[str]) -> set[Definition]:
        """The definitions that are used.

        Args:
            roots: where the computation begins, `runners.training.trainer.Trainer`.
            named: the strings that settings hold.
        """
        walk = _Walk(self, self._names)
        for string in named:
            walk.name(string)
        for root in roots:
            place, _, name = root.rpartition(".")
            module = self._module(place)
            assert module, f"no source of {place}"
            for definition in module.definitions[name]:
                walk.push(definition)
        return walk.finish()

    def _targets(self, definition: Definition) -> list[Definition]:
        """The definitions that this one leads to."""
        names = {target for targets in definition.uses.values() for target in targets}
        return list({target: None for name in sorted(names) for target in self.resolve(name) or ()})

    def _run_by(self, module: Module) -> list[Module]:
        """The modules that are run when this one is imported."""
        parts = [name.split(".") for name in (module.name, *module.imports)]
        names = {".".join(each[:end]): None for each in parts for end in range(1, len(each) + 1)}
        return [found for name in names if (found := self._module(name))]

    def resolve(self, name: str) -> Sequence[Definition] | None:
        """What a dotted name stands for; a whole module, where it names no more; None: nothing of the project."""
        if name not in self._resolved:
            self._resolved[name] = self._find(name)
        return self._resolved[name]

    def _find(self, name: str) -> Sequence[Definition] | None:
        parts = name.split(".")
        if parts[0] not in self._rooms:
            return None
        module, place = self._module(parts[0]), 1
        while place < len(parts) and (inner := self._module(".".join(parts[: place + 1]))):
            module, place = inner, place + 1
        assert module, f"no source of {parts[0]}"
        rest = parts[place:]
        if rest and rest[0] in module.definitions:
            return module.definitions[rest[0]]
        if rest and rest[0] in module.bindings:
            found = [self.resolve(".".join([target, *rest[1:]])) for target in module.bindings[rest[0]]]
            return [definition for some in found for definition in some or ()] or None
        return module.everything

    def _module(self, name: str) -> Module | None:
        if name not in self._modules:
            room, *inner = name.split(".")
            path = self._rooms[room].joinpath(*inner) if room in self._rooms else None
            files = [path / "__init__.py", path.with_name(f"{path.name}.py")] if path else []
            file = next((file for file in files if file.is_file()), None)
            self._modules[name] = Module(name, file, self.resolve) if file else None
        return self._modules[name]

    def _read_line(self, definition: Definition) -> str:
        """A definition's own text, and what the names in it stand for."""
        meant = (f"{name}={self._meant(targets)}" for name, targets in definition.uses.items())
        return " ".join([definition.content.digest, *meant])

    def _meant(self, targets: Sequence[str]) -> str:
        found = {target: self.resolve(target) for target in targets}
        outside = [target for target, definitions in found.items() if definitions is None]
        inside = [definition.content.digest for definitions in found.values() for definition in definitions or ()]
        return ",".join(sorted([*outside, *inside]))


class _Walk:
    """The way from roots to all that they lead to."""

    def __init__(self, sources: Sources, names: frozenset[str]) -> None:
        self._sources, self._names = sources, names
        self._seen: dict[Definition, None] = {}
        self._left: list[Definition] = []
        self._modules: set[Module] = set()
        self._named: set[str] = set()
        self._waiting: dict[str, list[Definition]] = {}
        """Entries of the tables behind us that nothing has named yet."""

    def push(self, definition: Definition) -> None:
        if definition not in self._seen:
            self._seen[definition] = None
            self._left.append(definition)

    def name(self, string: str) -> None:
        self._named.add(string)
        for entry in self._waiting.pop(string, ()):
            self.push(entry)

    def finish(self) -> set[Definition]:
        while self._left:
            definition = self._left.pop()
            self._import(definition.module)
            for target in self._sources.targets(definition):
                self.push(target)
            for string in definition.content.strings - self._named:
                self.name(string)
            if definition.whole and not definition.entries.keys() <= self._names:
                self.push(definition.whole)
                continue
            for key, entry in definition.entries.items():
                if key in self._named:
                    self.push(entry)
                else:
                    self._waiting.setdefault(key, []).append(entry)
        return set(self._seen)

    def _import(self, module: Module) -> None:
        if module not in self._modules:
            self._modules.add(module)
            for definition in (module.effects, *module.registered):
                self.push(definition)
            for other in self._sources.run_by(module):
                self._import(other)
