"""Columns of caption tables, as given in a grid file or on the command line: `image = "filepath"`."""

import json
from collections.abc import Iterable, Mapping
from typing import Any, Literal

from goalgrid.grid.errors import UserError, check_known

Role = Literal["image", "captions", "split"]
ROLES: dict[Role, str] = {
    "image": "the image's file name, or its bytes",
    "captions": "one caption or several; if each column has one caption, a list of columns",
    "split": "train, val or test",
}
EXTRA = "extra"
"""The role of columns that an objective reads, with one number per caption."""
Columns = tuple[tuple[str, tuple[str, ...]], ...]
"""(role, names) pairs given by the user; columns of other roles are recognised by their names."""


def columns_of(named: Mapping[Any, str | list[str]] | None) -> Columns:
    """Convert the `columns` table of a grid file."""
    return tuple((role, (names,) if isinstance(names, str) else tuple(names)) for role, names in (named or {}).items())


def from_command_line(entries: Iterable[str]) -> Columns:
    """Parse entries ROLE=COLUMN; a repeated role has several columns.

    >>> from_command_line(["image=filepath", "captions=c0", "captions=c1"])
    (('image', ('filepath',)), ('captions', ('c0', 'c1')))
    """
    named: dict[str, list[str]] = {}
    for entry in entries:
        role, separator, column = entry.partition("=")
        if not separator or not column:
            raise UserError(f"--columns {entry!r} is not ROLE=COLUMN, e.g. --columns image=filepath.")
        check_known("role", role, ROLES, where="in --columns")
        named.setdefault(role, []).append(column)
    return columns_of({**named})


def to_toml(columns: Columns) -> str:
    """Write the columns as in a grid file.

    >>> print(to_toml((("image", ("filepath",)), ("captions", ("c0", "c1")))))
    { image = "filepath", captions = ["c0", "c1"] }
    """
    values = {role: names[0] if len(names) == 1 else list(names) for role, names in columns}
    listed = ", ".join(f"{role} = {json.dumps(value, ensure_ascii=False)}" for role, value in values.items())
    return f"{{ {listed} }}"


def with_extra(columns: Columns, extra: tuple[str, ...]) -> Columns:
    """Add the columns that an objective reads."""
    return (*columns, (EXTRA, extra)) if extra else columns
