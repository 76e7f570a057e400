"""The registry of components: optional extensions of models and training, e.g. fusion encoders and training methods.

A component is a folder in `retrieval/components/`, whose `__init__.py` registers it without importing torch, so that
`plan` stays fast. Its code is loaded by dotted name when it is needed. Deleting a folder removes only that component.
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
    """A value logged per epoch. Training values are means over the epoch's steps unless `meaning` says otherwise."""

    meaning: str
    unit: str = ""


@dataclass(frozen=True)
class Component:
    """An optional extension of a model or of its training.

    Args:
        name: its name in `needs` of objectives and `excludes` of other components.
        needs: what it requires, in words for messages: `negatives from outside the batch`.
        excludes: names of the components that cannot provide this.
        without: how to avoid the component, in words for messages: `set resources.replicas = 1`.
        of: returns the label under which a model uses the component; empty if it does not use it.
        settings: classes of settings that select it in a model: encoders, scorers, second stages.
        fits: returns why the component and the rest of a model are incompatible; empty if they are compatible.
        training_method: dotted name of its `TrainingMethod`; empty if it has none.
        network: dotted name of the model class to use with it; empty for the standard class.
        data: dotted name of the data format that it reads (`retrieval/data/forms.py`); empty: images or features.
        warms_up: whether warm-up epochs may run without it, because its estimates need a model with some training.
        libraries: packages that only trials with it load, and that affect their results.
        logged: values that its trials log, by name, in addition to those that every trial logs.
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
    """One input of a component's image encoder, in the component's data format; all inputs together give one vector."""

    part: ClassVar[str]

    @property
    def values(self) -> int:
        """Number of values per image."""
        raise NotImplementedError


_components: dict[str, Component] = {}


def register(component: Component) -> None:
    """Register a component under its name."""
    _components[component.name] = component


@cache
def registered() -> dict[str, Component]:
    """Import the package of each component, and return all components by name."""
    # Import the model's settings first: they call this function, so importing them later would be circular.
    import_module("goalgrid.grid.settings.model")
    register(REPLICAS)
    for package in _packages():
        import_module(package)
    return _components


def _packages() -> list[str]:
    return [f"{FOLDER}.{module.name}" for module in iter_modules(import_module(FOLDER).__path__) if module.ispkg]


def choices(ours: Any, kind: "type[Settings]") -> Any:
    """Return the union of the built-in settings classes with those of this kind that components add."""
    union, *known = get_args(ours)
    brought = [settings for one in registered().values() for settings in one.settings if issubclass(settings, kind)]
    classes = [settings for settings in get_args(union) if settings is not kind]
    return Annotated[(reduce(or_, classes + brought), *known)]


@cache
def tables() -> frozenset[str]:
    """Return the table-valued fields of components' settings, which an extending recipe replaces as a whole."""
    kinds = (kind for component in registered().values() for kind in component.settings)
    fields = (entry for kind in kinds for entry in kind.model_fields.items())
    return frozenset(name for name, field in fields if get_origin(field.annotation) is dict)


@cache
def folders(name: str) -> tuple[str, ...]:
    """Return the subpackages with this name, e.g. `recipes` or `published`, of all components."""
    return tuple(f"{package}.{name}" for package in _packages() if find_spec(f"{package}.{name}"))


REPLICAS = Component("replicas", "a batch that they can share", "set resources.replicas = 1")
"""Data-parallel replicas: processes that each compute a part of the batch."""


def missing(name: str) -> str:
    """Return the error message for a component that is not installed."""
    folder = FOLDER.replace(".", "/")
    return f"the component {name!r} is not installed: no folder in {folder}. Reinstall goalgrid, or leave it out."


def of_objective(objective: "ObjectiveSettings") -> list[Component]:
    """Return the components that an objective needs; raise a UserError if one is not installed."""
    if lacking := [name for name in objective.needs if name not in registered()]:
        raise UserError(f"objective {objective.name!r}: {missing(lacking[0])}")
    return [registered()[name] for name in objective.needs]


def of_model(model: "ModelSettings") -> dict[str, Component]:
    """Return the components that a model uses, keyed by their label for messages."""
    return {label: component for component in registered().values() if (label := component.of(model))}


def clash(
    model: "ModelSettings",
    objective: "ObjectiveSettings | None" = None,
    others: Mapping[str, Component] = MappingProxyType({}),
) -> str:
    """Return why a model, an objective and other components are incompatible; empty if they are compatible."""
    present, needed = {**of_model(model), **others}, of_objective(objective) if objective else []
    present |= {f"objective {objective.name!r}": component for component in needed if objective}
    for (label, one), (other, excluded) in permutations(present.items(), 2):
        if excluded.name in one.excludes:
            return f"{label} needs {one.needs}, which {other} cannot give: {excluded.without}, or exclude this cell"
    return ""


def loaded(name: str) -> Any:
    """Import the module of a dotted name or `module:name`, and return the object."""
    return resolve_name(name)
