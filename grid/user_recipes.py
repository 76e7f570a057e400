"""The user's own recipes: TOML files, or tables of a grid file. Both may extend another recipe."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from goalgrid.grid import catalog
from goalgrid.grid.catalog import Catalog, Recipe
from goalgrid.grid.errors import UserError, several, toml_of, unknown, user_path
from goalgrid.grid.settings.base import check_name
from goalgrid.grid.syntax import differing
from goalgrid.grid.validation_messages import explain


class OwnRecipes:
    """A grid file's own recipes: its tables [recipe.NAME], and the recipe files that it refers to by path."""

    def __init__(self, tables: Mapping[str, Any], folder: Path, known: Catalog = catalog.SHIPPED) -> None:
        self._tables, self._folder, self._catalog = tables, folder, known
        self.whole: dict[str, dict[str, Any]] = {}
        self._from: dict[str, str] = {}

    def add(self, text: str) -> str:
        """Read a recipe and its dependencies, given its path (ending in .toml) or name, and return its name."""
        return self._read(text, self._folder, ())[0]

    def _read(self, text: str, folder: Path, before: tuple[str, ...]) -> tuple[str, dict[str, Any]]:
        """The recipe's name and its merged content."""
        path = (folder / user_path(text)).absolute()
        in_grid = not before or before[-1].startswith("[")
        if text.endswith(".toml"):
            whole = toml_of(path, f"recipe {text!r}", "Relative paths start at the folder of the file that names them.")
            name, place, folder = path.stem, str(path), path.parent
        elif in_grid and text in self._tables:
            name, place, whole = text, f"[recipe.{text}]", dict(self._tables[text])
        elif text in catalog.names("recipes"):
            return text, catalog.content(text)
        else:
            known = [*catalog.names("recipes"), *(self._tables if in_grid else ())]
            hint = "A recipe of your own is the path of a file that ends in .toml, or a table [recipe.NAME]."
            raise UserError(unknown("recipe", text, known, where=f"in {before[-1]}" if before else "", hint=hint))
        trail = *before, place
        if place in before:
            circle = " -> ".join(trail[trail.index(place) :])
            raise UserError(f"recipes extend or start from one another in a circle: {circle}")
        whole = catalog.whole_recipe(whole, place, lambda other: self._read(other, folder, trail))
        if parent := whole.get("starts_from"):
            whole["starts_from"] = self._read(str(parent), folder, trail)[0]
        self._keep(name, {"description": "your own", **whole}, place)
        return name, whole

    def _keep(self, name: str, whole: dict[str, Any], place: str) -> None:
        """Validate a recipe, and keep it unless it equals the shipped recipe of the same name."""
        try:
            check_name(name)
            new = self._catalog.validated(Recipe, whole)
        except ValidationError as error:
            raise several(f"recipe {place}", explain(error, Recipe)) from None
        except ValueError as error:
            raise UserError(f"recipe {place}: {error}, not {name!r}") from None
        other = catalog.recipe(name) if name in catalog.names("recipes") else None
        if name in self.whole:
            other = self._catalog.validated(Recipe, self.whole[name])
        if other is None:
            self.whole[name], self._from[name] = whole, place
        elif differs := _differences(new, other):
            owner = self._from.get(name, "the recipe that is shipped")
            raise UserError(
                f"recipe {place}: {owner} has the name {name!r}, too, and other content: {', '.join(differs)}. "
                "Give yours another name."
            )


def _differences(new: Recipe, other: Recipe) -> list[str]:
    """The settings in which two recipes differ, ignoring descriptions."""
    one, two = (
        {**recipe.model_dump(include={"model", "train", "gpu"}), "parents": recipe.parents} for recipe in (new, other)
    )
    return [f"{key} {mine} and {theirs}" for key, (mine, theirs) in differing(one, two).items()]
