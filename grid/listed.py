"""Folders of code that are lists of their own: what a module there defines under an agreed name is a member."""

from importlib import import_module
from pkgutil import iter_modules
from typing import TypeVar

Member = TypeVar("Member")


def members(package: str, name: str, kind: type[Member]) -> dict[str, Member]:
    """What the modules of a package call `name`, by module, in alphabetical order; a module without it is a helper.

    >>> from grid.errors import UserError
    >>> members("grid", "UserError", type)["errors"] is UserError
    True
    """
    found: dict[str, Member] = {}
    for module in sorted(each.name for each in iter_modules(import_module(package).__path__)):
        member = getattr(import_module(f"{package}.{module}"), name, None)
        if isinstance(member, kind):
            found[module] = member
    return found
