"""Folders that are lists of their own: of modules, by what each defines under an agreed name; and of TOML files."""

import tomllib
from importlib import import_module
from importlib.resources import files
from pkgutil import iter_modules
from typing import Any, TypeVar

Member = TypeVar("Member")


def members(package: str, name: str, kind: type[Member]) -> dict[str, Member]:
    """What the modules of a package call `name`, by module, in alphabetical order; a module without it is a helper.

    >>> from goalgrid.grid.errors import UserError
    >>> members("goalgrid.grid", "UserError", type)["errors"] is UserError
    True
    """
    found: dict[str, Member] = {}
    for module in sorted(each.name for each in iter_modules(import_module(package).__path__)):
        member = getattr(import_module(f"{package}.{module}"), name, None)
        if isinstance(member, kind):
            found[module] = member
    return found


def toml_names(package: str) -> tuple[str, ...]:
    """Names of the TOML files in a package's folder, in alphabetical order."""
    return tuple(
        sorted(file.name.removesuffix(".toml") for file in files(package).iterdir() if file.name.endswith(".toml"))
    )


def toml(package: str, name: str) -> dict[str, Any]:
    """The content of a TOML file in a package's folder.

    >>> toml("goalgrid.grid.presets", "demo")["name"]
    'demo'
    """
    return tomllib.loads(files(package).joinpath(f"{name}.toml").read_text(encoding="utf-8"))
