"""Refactoring makes nothing stale, and a fault does: drawn renames, exchanges and faults in the code of trainings."""

import ast
import os
import random
import shutil
import subprocess
import symtable
import sys
from collections.abc import Callable, Iterator
from functools import cache, partial
from itertools import combinations, pairwise
from pathlib import Path

import pytest

from goalgrid.grid import imports
from goalgrid.results.records import scopes as scopes_module
from goalgrid.results.records import sources as sources_module
from goalgrid.results.records.sources import Definition, Sources
from goalgrid.runners.training import fingerprint as fingerprints
from goalgrid.runners.training.fingerprint import ROOTS, names
from tests.mutants import faults
from tests.program import FILES, ROOT, module_of

pytestmark = pytest.mark.gate
BY_NAME = {"locals", "eval", "exec", "vars", "dir"}
DRAWN = 200


@cache
def reached() -> dict[tuple[str, str], Definition]:
    """What trainings reach, whatever their settings name, by module and name: functions and classes alone."""
    every = fingerprints.sources().reached(ROOTS, names())
    found = {(d.module.name, d.name.rpartition(".")[2]): d for d in every}
    nodes = ast.FunctionDef | ast.ClassDef
    return {key: d for key, d in found.items() if d.nodes and all(isinstance(node, nodes) for node in d.nodes)}


@cache
def text_of(module: str) -> str:
    return next(path for path in FILES if module_of(path) == module).read_text(encoding="utf-8")


@cache
def tree_of(module: str) -> ast.Module:
    """The syntax tree, which no caller changes."""
    return ast.parse(text_of(module))


@cache
def table_of(module: str) -> symtable.SymbolTable:
    return symtable.symtable(text_of(module), module, "exec")


def tables_of(module: str, name: str) -> list[symtable.SymbolTable]:
    """The symbol tables of a definition and of all that is in it, as Python makes them."""
    tables = [table for table in table_of(module).get_children() if table.get_name() == name]
    for table in tables:  # grows
        tables += table.get_children()
    return tables


def node_of(tree: ast.Module, name: str) -> ast.AST:
    return next(node for node in tree.body if getattr(node, "name", "") == name)


def variables(module: str, name: str) -> list[str]:
    """The locals of functions in a definition that no other variable in it shares the name of."""
    tables = tables_of(module, name)
    words = {word for table in tables for word in table.get_identifiers()}
    if words & BY_NAME:
        return []
    unique = []
    for word in sorted(words):
        uses = [(table, table.lookup(word)) for table in tables if word in table.get_identifiers()]
        owners = [(table, symbol) for table, symbol in uses if not symbol.is_free()]
        if len(owners) != 1 or not owners[0][1].is_local() or owners[0][0].get_type() != "function":
            continue
        table, symbol = owners[0]
        other = symbol.is_parameter() or symbol.is_imported() or symbol.is_namespace()
        of_function = table.get_name() not in ("listcomp", "setcomp", "dictcomp", "genexpr") or inside(table, tables)
        if not other and of_function:
            unique.append(word)
    return unique


def inside(comprehension: symtable.SymbolTable, tables: list[symtable.SymbolTable]) -> bool:
    """Whether a comprehension is in a function."""
    (around,) = (t for t in tables if any(child.get_id() == comprehension.get_id() for child in t.get_children()))
    if around.get_type() != "function":
        return False
    return around.get_name() not in ("listcomp", "setcomp", "dictcomp", "genexpr") or inside(around, tables)


def rename(node: ast.AST, old: str, new: str) -> int:
    """Rename a variable wherever it occurs; returns how often."""
    count = 0
    for part in ast.walk(node):
        for field in {"id", "name", "rest", "names"}.intersection(part._fields):
            value = getattr(part, field)
            if isinstance(part, ast.Name | ast.ExceptHandler | ast.MatchAs | ast.MatchStar | ast.MatchMapping):
                if value == old:
                    setattr(part, field, new)
                    count += 1
            elif isinstance(part, ast.Nonlocal) and old in value:
                part.names = [new if name == old else name for name in value]
    return count


def test_drawn_renames_of_locals_change_no_fingerprint() -> None:
    """To new names, and to those of definitions of the module, which the local then shadows."""
    chance, trees, renamed = random.Random(0), dict[str, ast.Module](), 0
    pairs = [(*key, word) for key in sorted(reached()) for word in variables(*key)]
    assert len(pairs) > 5 * DRAWN
    for number, (module, name, word) in enumerate(chance.sample(pairs, DRAWN)):
        tree = trees.setdefault(module, ast.parse(text_of(module)))
        node = node_of(tree, name)
        present = {word for part in ast.walk(node) for word in words_of(part)}
        others = [n.name for n in tree.body if isinstance(n, ast.FunctionDef | ast.ClassDef) and n.name not in present]
        renamed += rename(node, word, chance.choice([*others, f"x{number}"]))
    assert renamed >= 2 * DRAWN
    texts = {**fingerprints.sources()._texts, **{name: ast.unparse(tree).encode() for name, tree in trees.items()}}
    after = Sources(texts, names())
    assert after.fingerprint(ROOTS, names()) == fingerprints.sources().fingerprint(ROOTS, names())


def words_of(node: ast.AST) -> Iterator[str]:
    for field in ("id", "name", "rest", "arg", "asname"):
        if isinstance(word := getattr(node, field, None), str):
            yield word.partition(".")[0]


def counted(node: ast.AST) -> Iterator[ast.AST]:
    """The nodes that may change numbers: none of annotations, messages and docstrings."""
    yield node
    for field, value in ast.iter_fields(node):
        if field in ("annotation", "returns", "msg") or isinstance(node, ast.Raise):
            continue
        for part in value if isinstance(value, list) else [value]:
            if isinstance(part, ast.AST):
                yield from counted(part)


Change = Callable[[], None]


def swap(one: ast.AST, other: ast.AST, field: str) -> None:
    first, second = getattr(one, field), getattr(other, field)
    setattr(one, field, second)
    setattr(other, field, first)


def exchanged_locals(node: ast.AST, locals_: set[str]) -> Iterator[Change]:
    for part in counted(node):
        if isinstance(part, ast.BinOp | ast.Call | ast.Compare | ast.Subscript):
            words = [word for word in counted(part) if isinstance(word, ast.Name) and word.id in locals_]
            pairs = combinations([word for word in words if isinstance(word.ctx, ast.Load)], 2)
            yield from (partial(swap, one, other, "id") for one, other in pairs if one.id != other.id)


def exchanged_parameters(node: ast.AST, locals_: set[str]) -> Iterator[Change]:
    for part in counted(node):
        if isinstance(part, ast.arguments):
            pairs = combinations([*part.posonlyargs, *part.args, *part.kwonlyargs], 2)
            yield from (partial(swap, one, other, "arg") for one, other in pairs)


def exchanged_keywords(node: ast.AST, locals_: set[str]) -> Iterator[Change]:
    for part in counted(node):
        if isinstance(part, ast.Call):
            for one, other in combinations([keyword for keyword in part.keywords if keyword.arg], 2):
                if ast.dump(one.value) != ast.dump(other.value):
                    yield partial(swap, one, other, "arg")


def exchanged_attributes(node: ast.AST, locals_: set[str]) -> Iterator[Change]:
    attributes = [part for part in counted(node) if isinstance(part, ast.Attribute)]
    pairs = pairwise(attributes)
    yield from (partial(swap, one, other, "attr") for one, other in pairs if one.attr != other.attr)


def local_for_global(node: ast.AST, locals_: set[str]) -> Iterator[Change]:
    for part in counted(node):
        if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Load) and part.id in locals_:
            yield partial(setattr, part, "id", "Tensor")


EXCHANGES = {
    "two locals in an expression": exchanged_locals,
    "two parameters of a signature": exchanged_parameters,
    "two keywords": exchanged_keywords,
    "two attributes": exchanged_attributes,
    "a local for a global": local_for_global,
}


def digests(module: str, text: str) -> dict[str, str]:
    """The digests of all definitions of a module, and of the entries of its tables."""
    found = Sources({module: text.encode()}, names()).module(module)
    assert found
    each = list(found.everything)
    for definition in each:  # grows
        each += definition.entries.values()
    return {definition.name: definition.digest for definition in each}


@pytest.mark.parametrize("kind", EXCHANGES)
def test_drawn_exchanges_change_the_fingerprint(kind: str) -> None:
    """The digest of a reached definition, which is part of the fingerprint."""
    chance, drawn = random.Random(kind), 0
    keys = sorted(key for key, definition in reached().items() if not definition.is_settings)
    chance.shuffle(keys)
    for module, name in keys:
        node = node_of(ast.parse(text_of(module)), name)
        if changes := list(EXCHANGES[kind](node, set(variables(module, name)))):
            before = digests(module, ast.unparse(node))
            chance.choice(changes)()
            assert digests(module, ast.unparse(node)) != before, (module, name, ast.unparse(node))
            drawn += 1
        if drawn == DRAWN // len(EXCHANGES):
            return
    pytest.fail(f"only {drawn}")


def test_drawn_faults_change_the_fingerprint() -> None:
    """Those of `make mutants`, in what trainings reach; the default of a setting is in a trial's identity instead."""
    drawn = 0
    for fault in faults.Sources(ROOT).draw(("objectives", "retrieval/encoders", "runners/training"), 3 * DRAWN, 2):
        module = module_of(ROOT / fault.file)
        body = tree_of(module).body
        place = next(n for n, statement in enumerate(body) if fault.line <= (statement.end_lineno or 0))
        definition = reached().get((module, getattr(body[place], "name", "")))
        if definition and not definition.is_settings and drawn < DRAWN:
            statements = body[place], ast.parse(fault.text(text_of(module).encode())).body[place]
            before, after = (digests(module, ast.unparse(statement))[definition.name] for statement in statements)
            assert before != after, fault
            drawn += 1
    assert drawn == DRAWN


ALONE = """
import hashlib, sys
from pathlib import Path
from goalgrid.results.records.sources import Sources, texts_of

folders = {f"goalgrid.{room}": Path(sys.argv[1]) / room for room in sys.argv[2:]}
texts = texts_of(folders)
sources = Sources(texts, frozenset(["con", "lin", "sig"]))
lines = sorted(definition.line for name in texts for definition in sources.module(name).everything)
print(len(lines), hashlib.sha256("\\n".join(lines).encode()).hexdigest())
"""
"""Prints a digest of all definitions in rooms, by a Python that has none of our libraries."""


def other_pythons() -> list[str]:
    """Interpreters of later versions on this machine."""
    later = [f"3.{minor}" for minor in range(sys.version_info.minor + 1, sys.version_info.minor + 6)]
    versions = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    places = [*(shutil.which(f"python{version}") for version in later)]
    places += [str(path) for version in later for path in versions.glob(f"{version}*/bin/python")]
    works = (subprocess.run([place, "-c", ""], capture_output=True).returncode == 0 for place in places if place)
    return [place for place, usable in zip(filter(None, places), works, strict=True) if usable]


def test_later_pythons_find_the_same(tmp_path: Path) -> None:
    if not (others := other_pythons()):
        pytest.skip("no later Python is here")
    for module in (sources_module, scopes_module, imports):
        package = tmp_path.joinpath(*module.__name__.split(".")[:-1])
        package.mkdir(parents=True, exist_ok=True)
        for folder in (package, *(folder for folder in package.parents if tmp_path in folder.parents)):
            (folder / "__init__.py").touch()
        shutil.copy(str(module.__file__), package)
    command = ["-c", ALONE, str(ROOT), "objectives", "runners"]
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    told = {
        place: subprocess.check_output([place, *command], cwd=tmp_path, env=environment, text=True)
        for place in (sys.executable, *others)
    }
    assert len(set(told.values())) == 1, told
    assert int(told[sys.executable].split()[0]) > 500
