"""The registry of components: what a model or a training may be made of beyond two encoders, a loss and one loop.

A component is a folder in `retrieval/components/`, whose first page registers it: without torch, so that `plan` stays
fast. What it computes is found there under a dotted name. Delete a folder, and its component alone is gone.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache, reduce
from importlib import import_module
from importlib.util import find_spec
from itertools import permutations
from operator import or_
from pkgutil import iter_modules, resolve_name
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, NamedTuple, get_args, get_origin

from goalgrid.grid.errors import UserError

if TYPE_CHECKING:
    from goalgrid.grid.settings import ObjectiveSettings
    from goalgrid.grid.settings.base import Settings
    from goalgrid.grid.settings.model import ModelSettings

FOLDER = "goalgrid.retrieval.components"


class Logged(NamedTuple):
    """A value of an epoch's row in the history. Without another word, training's are means over the epoch's steps."""

    meaning: str
    unit: str = ""


@dataclass(frozen=True)
class Component:
    """Something that a model or a training may have.

    Args:
        name: as objectives say that they need it, and components that they exclude it.
        needs: what it needs, for a user: `negatives from outside the batch`.
        excludes: names of components that cannot give it that.
        without: how to do without it, for a user: `set resources.replicas = 1`.
        of: how a model says that it has the component; empty: it has none.
        settings: the classes of settings by which a model may choose it: encoders, scorers, second stages.
        fits: what does not fit to it in a model that has it, for a user; empty: all does.
        training_method: dotted name of its `TrainingMethod`; empty: it has none.
        network: dotted name of the class of the models that have it; empty: models stay as they are.
        data: dotted name of the form of the data that it reads (`retrieval/data/forms.py`); empty: images or features.
        warms_up: whether a training may warm up without it, since it estimates what a new model knows nothing of.
        libraries: packages that only trainings with it load, and that compute their numbers.
        logged: what its trainings log in addition to what all log, by name.
        about: a sentence that explains it in the description of an objective that needs it.
    """

    name: str
    needs: str
    without: str
    excludes: frozenset[str] = frozenset()
    settings: "tuple[type[Settings], ...]" = ()
    fits: "Callable[[ModelSettings], str]" = lambda model: ""
    of: "Callable[[ModelSettings], str]" = lambda model: ""
    training_method: str = ""
    network: str = ""
    data: str = ""
    warms_up: bool = False
    libraries: frozenset[str] = frozenset()
    logged: Mapping[str, Logged] = field(default_factory=dict)
    about: str = ""


class PartRead:
    """Something that a component's image encoder reads of data in the component's form; all of it makes one vector."""

    part: ClassVar[str]

    @property
    def values(self) -> int:
        """Values of an image."""
        raise NotImplementedError


_components: dict[str, Component] = {}


def register(component: Component) -> None:
    """Register a component under its name."""
    _components[component.name] = component


@cache
def registered() -> dict[str, Component]:
    """Return all components by name, after the import of the first page of each folder."""
    # A model's settings ask for those of the components, and are imported first: the other way round is a circle.
    import_module("goalgrid.grid.settings.model")
    register(REPLICAS)
    for package in _packages():
        import_module(package)
    return _components


def _packages() -> list[str]:
    return [f"{FOLDER}.{module.name}" for module in iter_modules(import_module(FOLDER).__path__) if module.ispkg]


def choices(ours: Any, kind: "type[Settings]") -> Any:
    """Return the union of our settings with those of this kind that components bring."""
    union, *known = get_args(ours)
    brought = [settings for one in registered().values() for settings in one.settings if issubclass(settings, kind)]
    classes = [settings for settings in get_args(union) if settings is not kind]
    return Annotated[(reduce(or_, classes + brought), *known)]


@cache
def tables() -> frozenset[str]:
    """Return the fields of components' settings whose value is a table, which an extending recipe replaces whole."""
    kinds = (kind for component in registered().values() for kind in component.settings)
    fields = (entry for kind in kinds for entry in kind.model_fields.items())
    return frozenset(name for name, field in fields if get_origin(field.annotation) is dict)


@cache
def folders(name: str) -> tuple[str, ...]:
    """Return the packages of this name in the folders of all components: `recipes`, `published`."""
    return tuple(f"{package}.{name}" for package in _packages() if find_spec(f"{package}.{name}"))


REPLICAS = Component("replicas", "a batch that they can share", "set resources.replicas = 1")
"""Processes that each learn from a part of the batch."""


def missing(name: str) -> str:
    """Return the message that a component is not installed."""
    folder = FOLDER.replace(".", "/")
    return f"the component {name!r} is not installed: no folder in {folder}. Install all of goalgrid, or leave it out."


def of_objective(objective: "ObjectiveSettings") -> list[Component]:
    """Return the components that an objective needs; UserError: one is not installed."""
    if lacking := [name for name in objective.needs if name not in registered()]:
        raise UserError(f"objective {objective.name!r}: {missing(lacking[0])}")
    return [registered()[name] for name in objective.needs]


def of_model(model: "ModelSettings") -> dict[str, Component]:
    """Return the components that a model has, by what a user calls them there."""
    return {label: component for component in registered().values() if (label := component.of(model))}


def clash(
    model: "ModelSettings",
    objective: "ObjectiveSettings | None" = None,
    others: Mapping[str, Component] = MappingProxyType({}),
) -> str:
    """Return why a model, an objective and other components exclude one another; empty: they do not."""
    present, needed = {**of_model(model), **others}, of_objective(objective) if objective else []
    present |= {f"objective {objective.name!r}": component for component in needed if objective}
    for (label, one), (other, excluded) in permutations(present.items(), 2):
        if excluded.name in one.excludes:
            return f"{label} needs {one.needs}, which {other} cannot give: {excluded.without}, or exclude this cell"
    return ""


def loaded(name: str) -> Any:
    """Return what a dotted name or `module:name` names, after the import of its module."""
    return resolve_name(name)
