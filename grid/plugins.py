"""Plug-ins: the user's files and packages that a grid `uses`, and what they register.

A file is known by its text, which a grid and its jobs carry: a worker on another host needs no copy of the file. A
process imports each version of a file once, as a module of its own; which of them a grid sees, its `Catalog` says.
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
"""The entry points by which an installed package names a module."""
PROGRAM = "goalgrid"
"""The package of this program: every worker has it, also where a file lies next to it."""


class Use(Settings):
    """A file, or an installed package, that a grid uses."""

    path: str
    """Absolute; of a package, the name of its entry point."""
    source: str
    """The file's text; of a package, the digest of its sources."""

    @property
    def is_file(self) -> bool:
        return self.path.endswith(".py")

    @property
    def module(self) -> str:
        """The name of its module; of a file, a name of its own."""
        return module_of(Path(self.path), self.source) if self.is_file else _entry_point(self.path).module

    def gone(self) -> bool:
        """Whether the file is not on this machine, so that the text that the grid keeps replaces it."""
        return self.is_file and not Path(self.path).is_file()


_imported: dict[Use, tuple[Registration, ...]] = {}
"""The plug-ins that this process has imported, with their registrations; as `sys.modules`, it only grows."""
_modules: dict[str, Use] = {}
"""The same by the name of their module; of a package, by its top-level name."""
_importing = RLock()
"""Held during an import: a plug-in's top-level code may change settings of torch, which are restored after it."""
differing: dict[Use, str] = {}
"""By a plug-in that runs: that its file is not as the grid that ran has it, and which of the two runs."""


def read(text: str, folder: Path, begins: str = "the grid file's folder") -> Use:
    """Return the plug-in that a grid file's `uses` names: by a path that begins at a folder, or by its entry point."""
    if not text:
        raise UserError("uses contains an empty string; give a .py file or an installed plugin's name.")
    if not text.endswith(".py"):
        return Use(path=text, source=_digest(text))
    path = (folder / user_path(text)).absolute()
    source = text_of(path, f"uses {text!r}", f"A path begins at {begins}.")
    trusted_code.remember(str(path), source)
    return Use(path=str(path), source=source)


def again(use: Use, where: str) -> Use:
    """Return a plug-in of a grid that ran: the file as it is now, if this user named it, else the saved text.

    A file that is here at a path which only --trust-code allows may be no file of this grid.

    Raises:
        Untrusted: this user never named the code.
    """
    if not use.is_file or (trusted_code.named(use.path) and not use.gone()):
        runs, which = read(use.path, Path()), "the file runs"
    elif trusted_code.trusted(use.source):
        trusted_code.remember(use.source)
        runs, which = use, "the grid's text runs, as you never named the file"
    else:
        raise _untrusted(use, where)
    with suppress(UserError):  # a file that cannot be read is not this one
        if use.is_file and not use.gone() and text_of(Path(use.path), where, "") != use.source:
            differing[runs] = f"{use.path} is not as {where} has it: {which}."
    return runs


def of_launch(use: Use, where: str) -> Use:
    """Return a plug-in of a launch, with the text that the launch keeps, whatever its file is now; or Untrusted."""
    if use.is_file:
        if not trusted_code.trusted(use.source):
            raise _untrusted(use, where)
        trusted_code.remember(use.source)
    return use


def _untrusted(use: Use, where: str) -> Untrusted:
    return Untrusted(
        f"{where} runs code you have not approved on this machine: {use.path}, {use.source.count(chr(10))} lines. Read "
        "it in the grid, below [[uses]]; --trust-code runs it, and remembers that."
    )


def uses_of(pairs: Iterable[Sequence[str]]) -> list[Use]:
    """Return the plug-ins from pairs of path and text, as a job carries them."""
    return [Use(path=path, source=source) for path, source in pairs]


def registrations(use: Use) -> tuple[Registration, ...]:
    """Return what a plug-in registers, after its import; UserError: it cannot be imported, or registers nothing."""
    with _importing:
        if use not in _imported:
            _imported[use] = _import(use)
            _modules[use.module if use.is_file else _top(use.module)] = use
        return _imported[use]


def origin(defined: Callable[..., Any]) -> Use:
    """Return the plug-in, imported in this process, that defines a function or class."""
    name = str(defined.__module__)
    return _modules.get(name) or _modules[_top(name)]


def imported_files() -> tuple[tuple[str, str], ...]:
    """Return the module name and the text of every file that this process has imported as a plug-in."""
    return tuple((use.module, use.source) for use in list(_imported) if use.is_file)


def _top(module: str) -> str:
    return module.partition(".")[0]


def _import(use: Use) -> tuple[Registration, ...]:
    if use.is_file:
        _check(use)
    elif _digest(use.path) != use.source:
        raise UserError(f"another version of the package {use.path!r} is installed here than where the launch began.")
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
    """Whether the import of a plug-in imports a library that may be torch, or may load it."""
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
    """Check that the file is Python, and imports no file next to it: only its own text goes to workers."""
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
                    f"{where}: {top!r} is next to the file and would not go to the workers with it. Put all into one "
                    f"file, or install a package with an entry point in {GROUP!r}: docs/own.md."
                )


def _line(error: BaseException, path: str) -> str:
    """`, line 7: tau = 1 / 0`: the last line of the file that the error went through."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename == path]
    return f", line {frames[-1].lineno}: {frames[-1].line}" if frames else ""


def line_of(error: BaseException) -> str:
    """Return the last line of a plug-in's file that an error went through; empty: it went through none.

    `/home/me/mine.py, line 7: tau = 1 / 0`
    """
    files = {use.path for use in list(_imported) if use.is_file}
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename in files]
    return frames[-1].filename + _line(error, frames[-1].filename) if frames else ""


def is_interrupt(error: BaseException) -> bool:
    """Return whether an error is the user's Ctrl-C: a KeyboardInterrupt that no line of a plug-in itself raised."""
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
    """SHA-256 of all sources of a package, by its entry point."""
    top = _entry_point(name).module.partition(".")[0]
    spec = find_spec(top)
    if spec is None or not spec.origin:
        raise UserError(f"package {name!r}: its module {top} cannot be found. Install it again.")
    origin = Path(spec.origin)
    files: Sequence[Path] = sorted(origin.parent.rglob("*.py")) if spec.submodule_search_locations else [origin]
    digest = sha256()
    for file in files:
        text = file.read_bytes()
        digest.update(f"{file.relative_to(origin.parent)} {len(text)} ".encode() + text)
    return digest.hexdigest()
