"""Resolve the settings of a grid's cells; sections shared by several cells are validated and serialised once."""

from collections.abc import Mapping
from operator import attrgetter
from typing import Any, NamedTuple

from pydantic import ValidationError

from goalgrid.grid import catalog
from goalgrid.grid.catalog import Catalog, Recipe
from goalgrid.grid.gridfile import Grid
from goalgrid.grid.identity import canonical_json
from goalgrid.grid.sections import SECTIONS, of_section, section_from
from goalgrid.grid.settings import DatasetSettings, ObjectiveSettings, Reader, TrainSettings
from goalgrid.grid.settings.base import ReadWhere, Settings
from goalgrid.grid.settings.components import of_model, of_objective, registered
from goalgrid.grid.settings.model import ModelSettings
from goalgrid.grid.syntax import Scalar
from goalgrid.grid.validation_messages import explain


class Shared(NamedTuple):
    """The settings that all trials of a cell share."""

    dataset: DatasetSettings
    recipe: str
    model: ModelSettings
    train: TrainSettings
    objective: ObjectiveSettings
    members: tuple[ModelSettings, ...] = ()
    """Models of the members, for an ensemble."""
    published: str = ""
    """Name of the published checkpoint of an imported record; empty if the trial is trained here."""
    origin: Recipe | None = None
    """The recipe from which the settings were made; None if they were read from a trial."""

    @property
    def libraries(self) -> frozenset[str]:
        """The packages that a trial loads in addition to torch and NumPy, and that affect its results."""
        models = (self.model, *self.members)
        present = [*of_objective(self.objective), *(p for m in models for p in of_model(m).values())]
        words = self.dataset.words == "nltk" and any(model.text.tokenizer is None for model in models)
        of_components = frozenset().union(*(component.libraries for component in present))
        return of_components.union(*(model.libraries for model in models), {"nltk"} if words else set())


class Resolver:
    """Resolves the settings of cells; each section is validated once per combination of its own swept values."""

    def __init__(self, grid: Grid) -> None:
        self.catalog = grid.catalog
        self.problems: dict[str, None] = {}
        self._set = grid.set.keys() | {name for entry in grid.where for name in entry.set}
        self._variants = grid.sweep.get("objective.variant", [])
        self._known: dict[tuple[Any, ...], Any] = {}
        self._texts: dict[int, str] = {}
        self._read = set[str]()
        self._unread = dict[str, tuple[str, ...]]()

    def shared(self, dataset: str, recipe: str, name: str, given: Mapping[str, Scalar]) -> Shared | None:
        """Resolve the settings of a cell; None if they are incompatible, with the reason added to `problems`."""
        objective = self._objective(name, given)
        model = self._section("model", dataset, recipe, given)
        if model is None:
            for section in ("dataset", "train"):  # to report what is wrong there as well
                self._made(section, dataset, recipe, of_section(section, given))
            return None
        reader = reader_of(model, objective)
        data, train = (self._section(name, dataset, recipe, given, reader) for name in ("dataset", "train"))
        origin = self.catalog.recipe(recipe)
        return Shared(data, recipe, model, train, objective, origin=origin) if data and train else None

    def text(self, section: Settings) -> str:
        """Return a section of this resolver as the canonical JSON that is hashed for trial ids."""
        if id(section) not in self._texts:  # the resolver keeps its sections, so no other object has this id
            self._texts[id(section)] = canonical_json(section)
        return self._texts[id(section)]

    def unread(self) -> list[str]:
        """Return messages about set and swept settings without effect; call it after all sections are resolved."""
        return [
            f"{name} has no effect in this grid: it needs {' and '.join(needed)}"
            for name, needed in self._unread.items()
            if name not in self._read
        ]

    def _objective(self, name: str, given: Mapping[str, Scalar]) -> ObjectiveSettings:
        """An objective with the parameter values given by the grid."""
        overrides = of_section("objective", given)
        key = "objective", name, *overrides.items()
        if key not in self._known:
            variant = str(overrides.pop("variant", "paper"))
            entry = self.catalog.objectives[name]
            read = entry.accepted(overrides, variant)
            parameters = entry.resolve(name, variant, read)
            first = str(self._variants[0]) if self._variants else variant
            if entry.resolve(name, first, entry.accepted(overrides, first)) == parameters:
                variant = first  # the same equation and numbers: one trial, whichever of the swept variants names it
            for parameter, value in overrides.items():
                declared = entry.parameters.get(parameter)
                other = declared.only_with if declared else None
                lacks = f"objective.{other[0]} = {other[1]}" if other else "an objective that has it"
                unmet = () if parameter in read else (lacks,)
                self._note(f"objective.{parameter}", unmet, same=parameters.get(parameter) == value)
            content = {"name": name, "variant": variant, "parameters": parameters}
            self._known[key] = self.catalog.validated(ObjectiveSettings, content)
        settings: ObjectiveSettings = self._known[key]
        return settings

    def _section(
        self, section: str, dataset: str, recipe: str, given: Mapping[str, Scalar], reader: Reader | None = None
    ) -> Any:
        """A section with those settings of the grid that have an effect; all others come from the recipe."""
        overrides = of_section(section, given)
        key = section, dataset, recipe, reader and (id(reader.model), *reader[1:]), *overrides.items()
        if key not in self._known:
            changed = self._made(section, dataset, recipe, overrides)
            unread = {name: unmet for name in overrides if changed and (unmet := lacking(changed, name, reader))}
            if section == "train" and overrides.get("epochs") and (unmet := _trains_nothing(recipe, self.catalog)):
                unread["epochs"] = unmet
            applied = {name: value for name, value in overrides.items() if name not in unread}
            settings = self._made(section, dataset, recipe, applied) if unread else changed
            if settings and changed:
                for name, unmet in unread.items():
                    same = _value(settings, name) == _value(changed, name)
                    self._note(f"{section}.{name}", unmet, same=same)
            self._read |= {f"{section}.{name}" for name in applied}
            self._known[key] = settings
        return self._known[key]

    def _made(self, section: str, dataset: str, recipe: str, overrides: Mapping[str, Scalar]) -> Settings | None:
        """A section with these values; None if they are invalid, with the reason added to `problems`."""
        try:
            return section_from(section, dataset, recipe, overrides, self.catalog)
        except ValidationError as error:
            self.problems.update(dict.fromkeys(explain(error, SECTIONS[section], f"recipe {recipe!r}: {section}.")))
            return None

    def _note(self, name: str, conditions: tuple[str, ...], *, same: bool = False) -> None:
        """Record the unmet conditions for a setting to have an effect; a set value equal to the trial's is allowed."""
        if conditions and not (same and name in self._set):
            self._unread.setdefault(name, conditions)
        else:
            self._read.add(name)


def _value(settings: Settings, name: str) -> Any:
    """The value of a setting, or a unique object for a parameter that a built-in pooling lacks."""
    *path, last = name.split(".")
    holder = attrgetter(".".join(path))(settings) if path else settings
    return holder.get(last, object()) if isinstance(holder, dict) else getattr(holder, last)


def reader_of(model: ModelSettings, objective: ObjectiveSettings) -> Reader:
    """Return the `Reader` that decides which data and training settings have an effect for a model and objective."""
    needed = objective.needs
    estimates = any(registered()[name].warms_up for name in needed if name in registered())
    return Reader(model, estimates or objective.entry.warms_up(objective.parameters), needed)


def lacking(settings: Settings, name: str, reader: Reader | None) -> tuple[str, ...]:
    """Return the unmet conditions for a setting (`image.pool_k`) to have an effect; empty if it has one."""
    *path, last = name.split(".")
    holder = attrgetter(".".join(path))(settings) if path else settings
    if not isinstance(holder, Settings):  # a user-defined component's parameter, read if others are
        return lacking(settings, ".".join(path), reader)
    marks = type(holder).model_fields[last].metadata
    return tuple(mark.words for mark in marks if isinstance(mark, ReadWhere) and not mark.condition(holder, reader))


def _trains_nothing(recipe: str, known: Catalog) -> tuple[str, ...]:
    """The unmet condition for train.epochs to have an effect; empty if the recipe trains."""
    if known.recipe(recipe).train.epochs:
        return ()
    # a shipped recipe without training extends the recipe that trains its model
    other = catalog.read("recipes", recipe).get("extends") if recipe in catalog.names("recipes") else None
    if other:
        return (f"a recipe that trains, such as {other!r} instead of {recipe!r}",)
    return (f"a recipe that trains, instead of {recipe!r}",)


def value_of(shared: Shared, name: str) -> Any:
    """Return a setting by its dotted name; None if a trial does not have it."""
    section, *rest = name.split(".")
    value: Any = getattr(shared, section)
    for part in ["parameters", *rest] if section == "objective" and rest != ["variant"] else rest:
        value = value.get(part) if isinstance(value, dict) else getattr(value, part, None)
    return value
