"""Apply command-line overrides to a grid: KEY=VALUE, folders of data and weights, and the resulting grid name."""

import hashlib
import re
import tomllib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from goalgrid.grid import catalog
from goalgrid.grid.document import KINDS, GridDocument, Text, content_of, unset
from goalgrid.grid.errors import UserError, check_known, kept_path, parsed_toml
from goalgrid.grid.settings.pretrained_networks import RANDOM

NO_TRIALS = (
    "name", "tables", "trackers", "data", "weights", "checkpoints", "resources", "reliability", "evaluate", "fair",
    "notes",
)  # fmt: skip
"""Fields of a grid file that do not change trial ids."""
AXES = ("datasets", "recipes", "objectives", "sweep")
CHANGES = r"[A-Za-z0-9._+,=-]+"
"""Characters allowed for overrides in a grid's name; safe in every shell and file system."""
READABLE = 60
"""Maximum length of overrides in a grid's name; longer overrides are replaced by their hash."""


def changed(
    content: GridDocument, overrides: Sequence[str] = (), *, roots: Iterable[str] = (), weights: Iterable[str] = ()
) -> GridDocument:
    """Apply command-line overrides (see `load`) to the content; a grid whose trials change is renamed."""
    if overrides:
        table = dict(content.fields)
        changes = [_apply(table, override) for override in overrides]
        names = [key.removeprefix("set.").removeprefix("sweep.") for key, _ in changes]
        if "where" in content.fields and "where" not in dict(changes):
            table["where"] = unset(table["where"], names)
        content = content_of(Text(content.where, table)).unchosen(names)
        if any(key.partition(".")[0] in AXES for key, _ in changes):
            content = content.put(idle=[field for field in ("exclude", "where") if field not in dict(changes)])
        if "datasets" in dict(changes):
            places = content.table("data").items()
            content = content.put(data={name: place for name, place in places if name in content.placed})
        if "name" in content.fields:
            content = content.put(name=changed_name(content.fields["name"], changes))
    for root in roots:
        content = _with_data(content, root)
    for place in weights:
        content = _with_weights(content, place)
    return content


def key_and_value(override: str) -> tuple[str, Any]:
    """Split KEY=VALUE and read the value as TOML, or as plain text if it is not valid TOML.

    >>> key_and_value("seeds=[0, 1]"), key_and_value("variant=released")
    (('seeds', [0, 1]), ('variant', 'released'))
    """
    key, separator, text = override.partition("=")
    if not separator or not key:
        raise UserError(f"--set {override!r} is not KEY=VALUE, e.g. --set train.epochs=2 or --set 'seeds=[0,1]'.")
    try:
        return key, parsed_toml(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return key, text
    except ValueError as error:
        raise UserError(f"--set {key}: {error}.") from None


def _apply(table: dict[str, Any], override: str) -> tuple[str, Any]:
    """Apply KEY=VALUE to a grid file's table, and return the key and value."""
    key, value = key_and_value(override)
    first, _, rest = key.partition(".")
    if rest and first in ("set", "sweep"):
        *tables, last = first, rest
    elif key.startswith("select.over."):
        *tables, last = "select", "over", key.removeprefix("select.over.")
    elif key in KINDS or (
        rest and first in ("data", "select", "resources", "reliability", "budget", "evaluate", "fair", "notes")
    ):
        *tables, last = key.split(".")
    elif isinstance(value, list):
        raise UserError(f"--set {override!r} gives a list; to sweep a setting, write --set 'sweep.{override}'.")
    else:
        *tables, last = "set", key
    for name in tables:
        table[name] = dict(table[name]) if isinstance(table.get(name), dict) else {}
        table = table[name]
    table[last] = value
    return key, value


def changed_name(name: str, changes: Iterable[tuple[str, Any]]) -> str:
    """Return the name of a grid after `--set`: with the overrides that change its trials, or their hash if too long.

    >>> changed_name("demo", [("train.epochs", 1), ("seeds", [0, 1]), ("resources.cpu", 2)])
    'demo@seeds=0+1,train.epochs=1'
    >>> changed_name("demo@train.epochs=1", [("train.epochs", 1)])
    'demo@train.epochs=1'

    If the name itself is overridden, it is used as it is.
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


def _with_data(content: GridDocument, root: str) -> GridDocument:
    """Set the folder of a data set: DATASET=DIR, or only DIR for a grid with one data set."""
    dataset, separator, folder = root.partition("=")
    datasets = content.names("datasets")
    if separator:
        check_known("data set", dataset, content.placed, where=f"in --root {root}", hint="Or DIR alone.")
    else:
        if len(datasets) != 1:
            raise UserError(f"--root {root}: the grid has {len(datasets)} data sets; say which: --root NAME={root}.")
        dataset, folder = datasets[0], root
    catalog.has_folder(dataset, f"--root {root}")
    places = content.table("data")
    before = places.get(dataset)
    place = {**(before if isinstance(before, dict) else {}), "root": kept_path(folder, Path())}
    return content.put(data={**places, dataset: place})


def _with_weights(content: GridDocument, place: str) -> GridDocument:
    """Set the folder of pretrained weights: NAME=DIR."""
    name, separator, folder = place.partition("=")
    if not separator:
        raise UserError(f"--weights {place!r} is not NAME=DIR, the name as in the recipe.")
    models = [content.catalog.recipe(recipe).model for recipe in content.catalog.recipe_names()]
    known = {str(value) for setting, value in content.given() if setting.endswith((".weights", ".pieces"))}
    known |= {part.weights for model in models for part in model.pretrained}
    check_known("weights", name, sorted(known - {RANDOM}), where="in --weights")
    return content.put(weights={**content.table("weights"), name: kept_path(folder, Path())})
