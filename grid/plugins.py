"""Plug-ins: the user's files and packages that a grid lists in `uses`, and their registrations.

A grid and its jobs carry the text of each file, so a worker on another host needs no copy of the file. A process
imports each version of a file once, as a separate module; a grid's `Catalog` selects the versions that the grid sees.
"""

import ast
import sys
import traceback
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import cache
from hashlib import sha256
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from importlib.util import find_spec
from pathlib import Path
from threading import RLock
from types import ModuleType
from typing import Any

from goalgrid.grid import global_state, trusted_code
from goalgrid.grid.errors import UserError, check_known, said_by, text_of, user_path
from goalgrid.grid.imports import Import, NotFollowed, imported
from goalgrid.grid.registration import Registration, module_of, registered
from goalgrid.grid.settings.base import Settings
from goalgrid.grid.trusted_code import Untrusted

GROUP = "goalgrid.plugins"
"""The entry-point group in which an installed package names its plug-in module."""
PROGRAM = "goalgrid"
"""The package of this program, which every worker has installed."""


class Use(Settings):
    """A file or installed package that a grid uses."""

    path: str
    """The file's absolute path, or the name of a package's entry point."""
    source: str
    """The file's text, or the digest of a package's sources."""

    @property
    def is_file(self) -> bool:
        return self.path.endswith(".py")

    @property
    def module(self) -> str:
        """The name of its module; for a file, a name derived from path and text."""
        return module_of(Path(self.path), self.source) if self.is_file else _entry_point(self.path).module

    def gone(self) -> bool:
        """Return whether the file is missing on this machine, so that the text saved with the grid is used."""
        return self.is_file and not Path(self.path).is_file()


_imported: dict[Use, tuple[Registration, ...]] = {}
"""The plug-ins imported in this process, with their registrations; like `sys.modules`, it only grows."""
_modules: dict[str, Use] = {}
"""The imported plug-ins by module name; packages by their top-level name."""
_importing = RLock()
"""Held during an import, because a plug-in's top-level code may change torch settings, which are then restored."""
differing: dict[Use, str] = {}
"""A message for each plug-in whose file differs from the text saved with the grid: which of the two is run."""


def read(text: str, folder: Path, begins: str = "the grid file's folder") -> Use:
    """Return the plug-in named in `uses`: a file by its path relative to `folder`, or a package by its entry point."""
    if not text:
        raise UserError("uses contains an empty string; give a .py file or an installed plugin's name.")
    if not text.endswith(".py"):
        return Use(path=text, source=_digest(text))
    path = (folder / user_path(text)).absolute()
    source = text_of(path, f"uses {text!r}", f"A path begins at {begins}.")
    trusted_code.remember(str(path), source)
    return Use(path=str(path), source=source)


def again(use: Use, where: str) -> Use:
    """Return a plug-in of a saved grid: the current file if this user has named it in a grid, else the saved text.

    A file at the same path that this user never named may have nothing to do with this grid, so it is not run.

    Raises:
        Untrusted: this user never named the code, and did not pass --trust-code.
    """
    if not use.is_file or (trusted_code.named(use.path) and not use.gone()):
        runs, which = read(use.path, Path()), "the file runs"
    elif trusted_code.trusted(use.source):
        trusted_code.remember(use.source)
        runs, which = use, "the text saved with the grid runs, since no grid of yours names the file"
    else:
        raise _untrusted(use, where)
    with suppress(UserError):  # a file that cannot be read is not this one
        if use.is_file and not use.gone() and text_of(Path(use.path), where, "") != use.source:
            differing[runs] = f"{use.path} differs from the text saved with {where}: {which}."
    return runs


def of_launch(use: Use, where: str) -> Use:
    """Return a plug-in of a launch with the text saved at launch; raise Untrusted if this user never approved it."""
    if use.is_file:
        if not trusted_code.trusted(use.source):
            raise _untrusted(use, where)
        trusted_code.remember(use.source)
    return use


def _untrusted(use: Use, where: str) -> Untrusted:
    return Untrusted(
        f"{where} runs code you have not approved on this machine: {use.path}, {use.source.count(chr(10))} lines. Read "
        "it in the grid, below [[uses]]; to run it and approve it for later, add --trust-code."
    )


def uses_of(pairs: Iterable[Sequence[str]]) -> list[Use]:
    """Build plug-ins from the (path, text) pairs that a job carries."""
    return [Use(path=path, source=source) for path, source in pairs]


def registrations(use: Use) -> tuple[Registration, ...]:
    """Import a plug-in, and return its registrations; raise a UserError if the import fails or registers nothing."""
    with _importing:
        if use not in _imported:
            _imported[use] = _import(use)
            _modules[use.module if use.is_file else _top(use.module)] = use
        return _imported[use]


def origin(defined: Callable[..., Any]) -> Use:
    """Return the imported plug-in that defines a function or class."""
    name = str(defined.__module__)
    return _modules.get(name) or _modules[_top(name)]


def imported_files() -> tuple[tuple[str, str], ...]:
    """Return the module name and text of each file imported as a plug-in in this process."""
    return tuple((use.module, use.source) for use in list(_imported) if use.is_file)


def _top(module: str) -> str:
    return module.partition(".")[0]


def _import(use: Use) -> tuple[Registration, ...]:
    if use.is_file:
        _check(use)
    elif _digest(use.path) != use.source:
        raise UserError(
            f"the package {use.path!r} is installed here in another version than on the machine that launched."
        )
    what = use.path if use.is_file else f"package {use.path!r}"
    if _loads_libraries(use):
        with suppress(ImportError):
            import_module("torch")  # before the file changes its settings
    try:
        with global_state.restored(), global_state.Contained(use.path, global_state.at_import):
            if use.is_file:
                _execute(use)
            else:
                _entry_point(use.path).load()
    except UserError as error:
        raise UserError(f"{what}{_line(error, use.path)}: {error}") from None
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        reason = f"{type(error).__name__}: {said_by(error)}"
        raise UserError(f"{what} does not import{_line(error, use.path)}: {reason}") from None
    modules = [use.module] if use.is_file else [name for name in registered if _top(name) == _top(use.module)]
    entries = tuple(one for name in modules for one in registered.get(name, ()))
    if not entries:
        raise UserError(f"{use.path} registers nothing. Decorate a loss with @goalgrid.objective(NAME): docs/own.md.")
    return entries


def _execute(use: Use) -> None:
    registered.pop(use.module, None)
    module = ModuleType(use.module)
    module.__file__ = use.path
    sys.modules[use.module] = module  # dataclasses and pickles look a module up by its name
    exec(compile(use.source, use.path, "exec"), module.__dict__)


def _loads_libraries(use: Use) -> bool:
    """Whether importing a plug-in imports a library that is torch or may load it."""
    if not use.is_file:
        return True
    harmless = {*sys.stdlib_module_names, PROGRAM, "numpy"}
    nodes: list[ast.AST] = [*ast.parse(use.source).body]
    while nodes:
        node = nodes.pop()
        if isinstance(node, Import):
            if {_top(target) for _, target in imported(node)} - harmless:
                return True
        elif not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):  # what a call imports comes later
            nodes += ast.iter_child_nodes(node)
    return False


def _check(use: Use) -> None:
    """Check that the file is valid Python and imports no neighbouring file, since workers receive only its own text."""
    try:
        tree = ast.parse(use.source, use.path)
    except SyntaxError as error:
        said = f"line {error.lineno}: {error.msg}: {error.text}".rstrip()
        raise UserError(f"{use.path} does not import, {said}") from None
    for node in ast.walk(tree):
        if not isinstance(node, Import):
            continue
        where = f"{use.path}, line {node.lineno}"
        try:
            modules = {target for _, target in imported(node)}
        except NotFollowed as error:
            fix = "import the names themselves from an installed module"
            raise UserError(f"{where}: {error} cannot be followed; {fix}.") from None
        for top in sorted(set(map(_top, modules)) - {PROGRAM}):
            neighbour = Path(use.path).with_name(top)
            if neighbour.with_suffix(".py").is_file() or (neighbour / "__init__.py").is_file():
                raise UserError(
                    f"{where}: {top!r} is next to the file and would not be sent to the workers. Put all code into one "
                    f"file, or install a package with an entry point in {GROUP!r}: docs/own.md."
                )


def _line(error: BaseException, path: str) -> str:
    """The last line of a file in an error's traceback: `, line 7: tau = 1 / 0`."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename == path]
    return f", line {frames[-1].lineno}: {frames[-1].line}" if frames else ""


def line_of(error: BaseException) -> str:
    """Return the last line of plug-in code in an error's traceback: `/home/me/mine.py, line 7: tau = 1 / 0`.

    Empty if the traceback has no such line.
    """
    files = {use.path for use in list(_imported) if use.is_file}
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename in files]
    return frames[-1].filename + _line(error, frames[-1].filename) if frames else ""


def is_interrupt(error: BaseException) -> bool:
    """Return whether an error is the user's Ctrl-C, i.e. a KeyboardInterrupt not raised by plug-in code."""
    *_, (frame, _) = traceback.walk_tb(error.__traceback__)
    name = str(frame.f_globals.get("__name__", ""))
    return isinstance(error, KeyboardInterrupt) and not {name, _top(name)} & _modules.keys()


def _entry_point(name: str) -> EntryPoint:
    known = {point.name: point for point in entry_points(group=GROUP)}
    hint = f"A file ends in .py; a package has an entry point in {GROUP!r}."
    check_known("package", name, sorted(known) or ["none is installed"], where="in uses", hint=hint)
    return known[name]


@cache
def _digest(name: str) -> str:
    """The SHA-256 of all source files of a package, given its entry point."""
    top = _entry_point(name).module.partition(".")[0]
    spec = find_spec(top)
    if spec is None or not spec.origin:
        raise UserError(f"package {name!r}: its module {top} cannot be found. Reinstall it.")
    origin = Path(spec.origin)
    files: Sequence[Path] = sorted(origin.parent.rglob("*.py")) if spec.submodule_search_locations else [origin]
    digest = sha256()
    for file in files:
        text = file.read_bytes()
        digest.update(f"{file.relative_to(origin.parent)} {len(text)} ".encode() + text)
    return digest.hexdigest()
