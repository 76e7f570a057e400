"""Resolve the imports of a source file from its syntax tree: the dotted name that each name refers to.

Used to read declarations above losses, to find the code that a trial depends on, and to check users' files.
"""

import ast

Import = ast.Import | ast.ImportFrom


class NotFollowed(ValueError):
    """An import whose names cannot be determined from the statement; the message quotes the statement."""


def imported(node: Import, package: str = "") -> list[tuple[str, str]]:
    """Return the names that an import defines, each with the dotted name that it refers to.

    Args:
        package: the package of the file, for relative imports; empty if it has none.

    Raises:
        NotFollowed: a relative import from outside the package, or `import *`.

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
    """Return the dotted name of the imported module; raise NotFollowed if it is outside the package."""
    if not node.level:
        return str(node.module)
    parts = package.split(".") if package else []
    if node.level > len(parts):
        raise NotFollowed("a relative import")
    return ".".join([*parts[: len(parts) - node.level + 1], *([node.module] if node.module else [])])
