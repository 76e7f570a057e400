"""The imports of a source, read from its syntax tree: which dotted name each name means.

What is declared above losses, what code a training reaches, and what a user's file needs are read by this one resolver.
"""

import ast

Import = ast.Import | ast.ImportFrom


class NotFollowed(ValueError):
    """An import whose names cannot be read from its statement; the message is the form that it has."""


def imported(node: Import, package: str = "") -> list[tuple[str, str]]:
    """Return the names that an import defines, each with the dotted name that it means.

    Args:
        package: of the file, in which relative imports begin; empty: it is in none.

    Raises:
        NotFollowed: a relative import that begins outside the package, or all names of a module.

    >>> (statement,) = ast.parse("from ..grid import catalog as known, plugins").body
    >>> imported(statement, "goalgrid.objectives")
    [('known', 'goalgrid.grid.catalog'), ('plugins', 'goalgrid.grid.plugins')]
    >>> imported(ast.parse("import torch.nn").body[0])
    [('torch', 'torch')]
    """
    if isinstance(node, ast.Import):
        first = ((alias, alias.name.partition(".")[0]) for alias in node.names)
        return [(alias.asname, alias.name) if alias.asname else (top, top) for alias, top in first]
    module = module_of(node, package)
    if any(alias.name == "*" for alias in node.names):
        raise NotFollowed(f"from {module} import *")
    return [(alias.asname or alias.name, f"{module}.{alias.name}") for alias in node.names]


def module_of(node: ast.ImportFrom, package: str = "") -> str:
    """Return the dotted name of the module from which names are imported; NotFollowed: outside the package."""
    if not node.level:
        return str(node.module)
    parts = package.split(".") if package else []
    if node.level > len(parts):
        raise NotFollowed("a relative import")
    return ".".join([*parts[: len(parts) - node.level + 1], *([node.module] if node.module else [])])
