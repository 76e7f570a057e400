"""Folders that are registries: of modules, by the value of an agreed name in each; and of TOML files."""

import tomllib
from importlib import import_module
from importlib.resources import files
from pkgutil import iter_modules
from typing import Any, TypeVar

Member = TypeVar("Member")


def members(package: str, name: str, kind: type[Member]) -> dict[str, Member]:
    """The values of `name` in the modules of a package, by module, in alphabetical order; the others are helpers.

    >>> from goalgrid.grid.errors import UserError
    >>> members("goalgrid.grid", "UserError", type)["errors"] is UserError
    True
    """
    by_module: dict[str, Member] = {}
    for module in sorted(info.name for info in iter_modules(import_module(package).__path__)):
        member = getattr(import_module(f"{package}.{module}"), name, None)
        if isinstance(member, kind):
            by_module[module] = member
    return by_module


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
