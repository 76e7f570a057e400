"""The first two stages of reading a grid: the text of a file or preset, and its normalised content."""

import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple, Self

from pydantic import ValidationError

from goalgrid.grid import catalog, plugins
from goalgrid.grid.catalog import SHIPPED, Catalog
from goalgrid.grid.errors import UserError, kept_path, several, sha256_of, toml_of, unknown, user_path
from goalgrid.grid.objectives.goal_matrix import GOAL
from goalgrid.grid.plugins import Use
from goalgrid.grid.syntax import dotted
from goalgrid.grid.user_recipes import OwnRecipes

KINDS: dict[str, type] = {
    "name": str,
    **dict.fromkeys(
        ("datasets", "recipes", "objectives", "seeds", "tables", "trackers", "uses", "exclude", "where", "idle"), list
    ),
    **dict.fromkeys(("recipe", "set", "sweep", "data", "weights", "checkpoints"), dict),
    **dict.fromkeys(("select", "resources", "reliability", "budget", "evaluate", "fair", "notes"), dict),
}
"""The fields of a grid file with the types of their values; a single value is accepted in place of a list."""
WORDS: dict[type, str] = {str: "text", list: "list", dict: "table"}
STARTS_FROM, FILE = "train.starts_from", "file:"
"""The setting for a published checkpoint, and the prefix of its path in a grid file."""


class Text(NamedTuple):
    """The text of a grid file, a preset or a command line."""

    where: str
    """Description of the grid, for messages."""
    table: dict[str, Any]
    folder: Path = Path()
    extends: str | None = None
    trail: tuple[str, ...] = ()
    """The chain of grids that extend one another, ending with this grid; used to detect cycles."""


class GridDocument(NamedTuple):
    """The normalised content of a grid, with recipes merged and files read; names and values are not yet checked."""

    where: str
    fields: dict[str, Any]
    """Values by field, each of the type in `KINDS`, and unknown keys."""
    catalog: Catalog = SHIPPED
    """The catalogue in which names are looked up."""

    def values(self, field: str) -> list[Any]:
        """Return the list in this field; empty if the field is missing."""
        return list(self.fields.get(field, ()))

    def table(self, field: str) -> dict[str, Any]:
        """Return the table in this field; empty if the field is missing."""
        return dict(self.fields.get(field, ()))

    def names(self, axis: str) -> list[str]:
        """Return the values of an axis that are texts."""
        return [name for name in self.values(axis) if isinstance(name, str)]

    @property
    def placed(self) -> list[str]:
        """The data sets that may have a folder in [data]: those to train on, and those to evaluate on."""
        further = self.table("evaluate").get("datasets", ())
        return [*self.names("datasets"), *(further if isinstance(further, list) else ())]

    def swept(self) -> list[tuple[str, Any]]:
        """Return a (setting, value) pair for each swept value."""
        lists = {name: values for name, values in self.table("sweep").items() if isinstance(values, list)}
        return [(name, value) for name, values in lists.items() for value in values]

    def over(self) -> dict[str, Any]:
        """Return the settings that [select] chooses, with their candidate values; empty without [select]."""
        over = self.table("select").get("over")
        return over if isinstance(over, dict) else {}

    def tried(self) -> list[tuple[str, Any]]:
        """Return a (setting, value) pair for each value that [select] tries; for distributions, the two ends."""
        ranges = [
            (name, [*values.values()] if isinstance(values, dict) else [values]) for name, values in self.over().items()
        ]
        return [
            (name, value) for name, lists in ranges for values in lists if isinstance(values, list) for value in values
        ]

    def given(self) -> list[tuple[str, Any]]:
        """Return a (setting, value) pair for each value in [set], [[where]], [sweep] and [select]."""
        some = [pair for entry in self.values("where") for pair in entry["set"].items()]
        return [*self.table("set").items(), *some, *self.swept(), *self.tried()]

    def unchosen(self, names: Iterable[str]) -> Self:
        """Remove these settings from [select]; remove [select] if nothing else remains in it."""
        if self.over().keys().isdisjoint(names := set(names)):
            return self
        over = {name: values for name, values in self.over().items() if name not in names}
        fields = {field: value for field, value in self.fields.items() if field != "select"}
        return self._replace(fields=fields | ({"select": {**self.table("select"), "over": over}} if over else {}))

    def put(self, **fields: Any) -> Self:
        """Return the content with these fields replaced."""
        return self._replace(fields=self.fields | fields)


def parse(path: Path) -> dict[str, Any]:
    return toml_of(path, f"grid {str(path)!r}", "`goalgrid grids` lists the shipped grids.")


def read_text(source: str, folder: Path = Path(), before: tuple[str, ...] = ()) -> Text:
    """Read a preset by name, or a grid file by its path relative to `folder`; `before`: the grids that extend it."""
    where, path = f"grid {source!r}", folder / user_path(source)
    place = os.path.realpath(path) if path.suffix == ".toml" else source
    if place in before:
        circle = [*before[before.index(place) :], place]
        raise UserError(f"it extends itself: {' -> '.join(Path(grid).name for grid in circle)}.")
    if path.suffix == ".toml":
        table = parse(path)
    elif source in catalog.names("presets"):
        table = catalog.read("presets", source)
    else:
        hint = "Or give the path of a grid file, ending in .toml."
        raise UserError(unknown("grid", source, catalog.names("presets"), hint=hint))
    base = table.pop("extends", None)
    if not isinstance(base, str | None):
        raise UserError(f"{where}: extends = {base!r} should be the path of a grid file, or a shipped grid's name.")
    return Text(where, table, path.parent, base, (*before, place))


def content_of(text: Text) -> GridDocument:
    """Return a text's content merged over that of the grid it extends, with its catalogue."""
    content = _normal(text.table, text.where)
    if text.extends is not None:
        try:
            content = _extended(content_of(read_text(text.extends, text.folder, text.trail)), content)
        except UserError as error:
            raise UserError(f"{text.where} extends {text.extends!r}: {error}") from None
    return _with_catalog(_with_checkpoints(_with_places(content, text.folder), text.folder), text.folder)


def _normal(table: Mapping[str, Any], where: str) -> GridDocument:
    """Normalise a text: single values to lists, tables in [set] and [sweep] to dotted names, ranges to values."""
    single = (bool, int, float, str, dict)
    fields: dict[str, Any] = {
        key: [value] if KINDS.get(key) is list and isinstance(value, single) else value for key, value in table.items()
    }
    if wrong := [key for key, value in fields.items() if not isinstance(value, KINDS.get(key, object))]:
        raise several(where, [f"{key}: it should be a {WORDS[KINDS[key]]} (got {fields[key]!r})" for key in wrong])
    if "objectives" in fields:
        spelled_out = (GOAL if name == "goal" else [name] for name in fields["objectives"])
        fields["objectives"] = [name for names in spelled_out for name in names]
    for field in ("set", "sweep"):
        if field in fields:
            fields[field] = dotted(fields[field], where, swept=field == "sweep")
    if isinstance(over := fields.get("select", {}).get("over"), dict):
        fields["select"] = {**fields["select"], "over": dotted(over, where, swept=True)}
    if "where" in fields:
        fields["where"] = [_where(entry, where) for entry in fields["where"]]
    return GridDocument(where, fields)


def _where(entry: Any, where: str) -> dict[str, Any]:
    """Normalise an entry of [[where]]: move its axes to the table `cells`."""
    if not isinstance(entry, dict) or not isinstance(entry.get("set", {}), dict):
        raise UserError(f"{where}: an entry of [[where]] should be a table, and so should its `set` (got {entry!r})")
    axes = entry.get("cells") or {axis: value for axis, value in entry.items() if axis != "set"}
    return {"cells": dotted(axes, where, swept=False), "set": dotted(entry.get("set", {}), where, swept=False)}


def unset(entries: Iterable[dict[str, Any]], names: Collection[str]) -> list[dict[str, Any]]:
    """Remove these settings from the entries of [[where]], and drop entries that set nothing else."""
    rest = [{**entry, "set": {key: entry["set"][key] for key in entry["set"] if key not in names}} for entry in entries]
    return [entry for entry in rest if entry["set"]]


def _extended(base: GridDocument, content: GridDocument) -> GridDocument:
    """Merge a grid over the grid that it extends: tables are merged, lists and values replaced.

    A setting in the extending grid's [set], [sweep] or [select] is removed from all of these in the extended grid, and
    from its [[where]]. The name is not inherited, and neither is a recipe of equal name if the new one has `extends`.
    """
    recipes = content.table("recipe").items()
    anew = {name for name, recipe in recipes if isinstance(recipe, dict) and "extends" in recipe}
    base = base.unchosen([*content.table("set"), *content.table("sweep")])
    to_set, swept, chosen = content.table("set"), content.table("sweep"), content.over()
    replaced: dict[str, Collection[str]] = {"recipe": anew, "set": {*swept, *chosen}, "sweep": {*to_set, *chosen}}
    below = {field: value for field, value in base.fields.items() if field != "name"}
    for field, names in replaced.items():
        below[field] = {name: value for name, value in base.table(field).items() if name not in names}
    if chosen and base.over():
        over = {name: value for name, value in base.over().items() if name not in chosen}
        below["select"] = {**base.table("select"), "over": over}
    if "datasets" in content.fields:
        below["data"] = {name: place for name, place in base.table("data").items() if name in content.placed}
    if "where" in below:
        below["where"] = unset(below["where"], [*to_set, *swept, *chosen])
    return content._replace(fields=catalog.over(below, content.fields))


def _with_catalog(content: GridDocument, folder: Path) -> GridDocument:
    """Add the catalogue to the content, with the grid's plug-ins and own recipes read from their paths."""
    problems = list[str]()
    tables = content.table("recipe")

    def used(entry: Any) -> Any:
        if isinstance(entry, str):
            return plugins.read(entry, folder)
        if isinstance(entry, dict):  # a grid that ran, read as a file
            with suppress(ValidationError):
                return plugins.again(Use.model_validate(entry), content.where)
        return entry

    def recipe(entry: Any) -> Any:
        is_own = isinstance(entry, str) and (entry.endswith(".toml") or isinstance(tables.get(entry), dict))
        return own_recipes.add(entry) if is_own else entry

    def read_all(read: Callable[[Any], Any], entries: Iterable[Any]) -> Iterator[Any]:
        for entry in entries:
            try:
                yield read(entry)
            except UserError as error:
                problems.append(str(error))

    uses = list(read_all(used, content.values("uses")))
    if problems:  # names that are unknown without them are no problems of their own
        raise several(content.where, dict.fromkeys(problems))
    known = Catalog.of(uses) if all(isinstance(use, Use) for use in uses) else SHIPPED
    own_tables = {name: table for name, table in tables.items() if isinstance(table, dict)}
    own_recipes = OwnRecipes(own_tables, folder, known)  # a recipe may name a pooling
    recipes = list(read_all(recipe, content.values("recipes")))
    list(read_all(recipe, tables))
    if problems:
        raise several(content.where, dict.fromkeys(problems))
    others = {name: table for name, table in tables.items() if not isinstance(table, dict)}
    axis = {"recipes": recipes} if "recipes" in content.fields else {}
    content = content.put(uses=uses, recipe={**others, **own_recipes.whole}, **axis)
    return content._replace(catalog=known.with_recipes(own_recipes.whole))


def _with_places(content: GridDocument, folder: Path) -> GridDocument:
    """Make the paths of data and weights absolute; relative paths start at the file's folder."""

    def absolute(path: Any) -> Any:
        return kept_path(path, folder) if isinstance(path, str) else path

    data = {
        name: {**place, "root": absolute(place["root"])} if isinstance(place, dict) and "root" in place else place
        for name, place in content.table("data").items()
    }
    return content.put(data=data, weights={name: absolute(path) for name, path in content.table("weights").items()})


def _with_checkpoints(content: GridDocument, folder: Path) -> GridDocument:
    """Replace the path of each published checkpoint by its hash, and keep the path in `checkpoints`."""
    places = dict[str, str]()

    def hashed(value: Any) -> Any:
        if isinstance(value, list):
            return [hashed(entry) for entry in value]
        if not isinstance(value, str) or not value.startswith(FILE):
            return value
        path = (folder / user_path(value.removeprefix(FILE))).absolute()
        try:
            digest = f"sha256:{sha256_of(path)}"
        except OSError as error:
            raise UserError(f"train.starts_from = {value!r}: {path} cannot be read: {error.strerror}.") from error
        places[digest] = str(path)
        return digest

    def all_hashed(table: Mapping[str, Any]) -> dict[str, Any]:
        return {key: hashed(value) if key == STARTS_FROM else value for key, value in table.items()}

    for field in ("set", "sweep"):
        content = content.put(**{field: all_hashed(content.table(field))})
    if entries := content.values("where"):
        content = content.put(where=[{**entry, "set": all_hashed(entry["set"])} for entry in entries])
    return content.put(checkpoints=content.table("checkpoints") | places)
