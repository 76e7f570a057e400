"""What a command line changes of a grid: KEY=VALUE, the places of data and weights, and the name that says so."""

import hashlib
import re
import tomllib
from collections.abc import Container, Iterable
from typing import Any

from goalgrid.grid import catalog
from goalgrid.grid.errors import UserError, unknown, user_path

NO_TRIALS = ("name", "tables", "trackers", "data", "weights", "checkpoints", "resources", "reliability")
"""Fields of a grid file that change no trial."""
CHANGES = r"[A-Za-z0-9._+,=-]+"
"""Characters of overrides in a grid's name: no shell and no file system minds them."""
READABLE = 60
"""Characters of overrides that stand in a grid's name; of longer overrides, their hash."""


def key_and_value(override: str) -> tuple[str, Any]:
    """The two halves of KEY=VALUE, the value read as TOML, or as it stands where it is none.

    >>> key_and_value("seeds=[0, 1]"), key_and_value("variant=released")
    (('seeds', [0, 1]), ('variant', 'released'))

    Raises:
        UserError: it has no "=".
    """
    key, separator, text = override.partition("=")
    if not separator or not key:
        raise UserError(f"--set {override!r} is not KEY=VALUE, e.g. --set train.epochs=2 or --set 'seeds=[0,1]'.")
    try:
        return key, tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return key, text


def apply_override(content: dict[str, Any], override: str, fields: Container[str]) -> tuple[str, Any]:
    """Change the content as KEY=VALUE says, and return the two.

    Args:
        fields: of a grid file.

    Raises:
        UserError: it has no "=", or it sets a setting to a list.
    """
    key, value = key_and_value(override)
    first, _, rest = key.partition(".")
    if first in ("set", "sweep") and rest:
        content[first] = {**content.get(first, {}), rest: value}
    elif first in ("data", "resources", "reliability", "budget") and rest:
        *path, last = key.split(".")
        table = content
        for part in path:
            table[part] = dict(table[part]) if isinstance(table.get(part), dict) else {}
            table = table[part]
        table[last] = value
    elif key in fields:
        content[key] = value
    elif isinstance(value, list):
        raise UserError(f"--set {override!r} gives a list; to sweep a setting, write --set 'sweep.{override}'.")
    else:
        content["set"] = {**content.get("set", {}), key: value}
    return key, value


def changed_name(name: str, changes: Iterable[tuple[str, Any]]) -> str:
    """The name of a grid after changes by `--set`: with the changes of its trials, or with their hash if too long.

    >>> changed_name("demo", [("train.epochs", 1), ("seeds", [0, 1]), ("resources.cpu", 2)])
    'demo@seeds=0+1,train.epochs=1'
    >>> changed_name("demo@train.epochs=1", [("train.epochs", 1)])
    'demo@train.epochs=1'

    A change of the name itself is the user's choice of the whole name.
    """
    of_trials = {key.removeprefix("set."): value for key, value in changes if key.split(".")[0] not in NO_TRIALS}
    if not of_trials or any(key == "name" for key, _ in changes):
        return name
    lists = {key: value if isinstance(value, list) else [value] for key, value in sorted(of_trials.items())}
    text = ",".join(f"{key}={'+'.join(map(str, values))}" for key, values in lists.items())
    if len(text) > READABLE or not re.fullmatch(CHANGES, text):
        text = hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()[:8]
    plain, _, before = name.partition("@")
    return name if before == text else f"{plain}@{before}{',' * bool(before)}{text}"


def name_and_folder(place: str) -> tuple[str, str]:
    """The two halves of NAME=DIR, the folder absolute.

    Raises:
        UserError: it has no "=".
    """
    name, separator, folder = place.partition("=")
    if not separator:
        raise UserError(f"--weights {place!r} is not NAME=DIR, the name as in the recipe.")
    return name, str(user_path(folder).absolute())


def place_data(content: dict[str, Any], root: str) -> None:
    """Say in the content where a data set lies: DATASET=DIR, or DIR alone for a grid with one data set.

    Raises:
        UserError: the grid has no such data set, or several and none is named, or the data set has no folder.
    """
    dataset, separator, folder = root.partition("=")
    datasets = content.get("datasets")
    named = [datasets] if isinstance(datasets, str) else datasets if isinstance(datasets, list) else []
    if separator and dataset not in named:
        raise UserError(unknown("data set", dataset, named, where=f"in --root {root}", hint="Or DIR alone."))
    if not separator:
        if len(named) != 1:
            raise UserError(f"--root {root}: the grid has {len(named)} data sets; say which: --root NAME={root}.")
        dataset, folder = named[0], root
    catalog.has_folder(dataset, f"--root {root}")
    content["data"] = {**content.get("data", {}), dataset: {"root": str(user_path(folder).absolute())}}
