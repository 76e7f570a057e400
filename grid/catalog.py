"""The catalogue: all recipes, data sets, objectives and components that a grid can refer to by name.

Each shipped recipe, preset and data set is one TOML file. A grid's own `Catalog` adds the grid's recipes and the
registrations of its plug-ins. It is built once, when the grid is read, and passed down.
"""

import tomllib
from collections import ChainMap
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from importlib import import_module
from importlib.resources import files
from pkgutil import iter_modules
from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, Field, PositiveInt, StrictBool, field_validator

from goalgrid.grid import plugins
from goalgrid.grid.errors import UserError, check_known, counted
from goalgrid.grid.objectives import OURS, Objectives
from goalgrid.grid.plugins import Use
from goalgrid.grid.registration import Kind
from goalgrid.grid.settings import TrainSettings, components
from goalgrid.grid.settings.base import WHOLE, Gpus, Settings, remaining_fields
from goalgrid.grid.settings.model import ModelSettings
from goalgrid.grid.settings.poolings import POOLINGS
from goalgrid.grid.syntax import flat

Shelf = Literal["recipes", "presets", "datasets"]
Member = TypeVar("Member")
Model = TypeVar("Model", bound=BaseModel)


class Recipe(Settings):
    """A model with its training settings, and the fraction of a GPU that it needs."""

    description: str
    known_as: str = ""
    """Its name in papers, printed in LaTeX tables; not inherited by recipes that extend it."""
    gpu: Gpus = 1.0
    starts_from: str | None = None
    """The recipe whose best checkpoint (same data set, objective and seed) this recipe fine-tunes."""
    ensemble: tuple[str, ...] = ()
    """The recipes whose scores (same data set, objective and seed) this recipe averages, without any training."""
    words: str = ""
    """Vocabulary settings of the published experiment, if they differ from the defaults of `dataset`."""
    reading: dict[str, str] = {}
    """Our interpretations and substitutes where the paper is silent or its code differs: one phrase per topic."""
    model: ModelSettings
    train: TrainSettings

    @field_validator("reading", mode="before")
    @classmethod
    def _reading(cls, value: Any) -> Any:
        """Accept a single text in place of a table."""
        return {"all": value} if isinstance(value, str) else value

    @property
    def parents(self) -> tuple[str, ...]:
        """The recipes whose trials must finish first: its members, or the recipe that it starts from."""
        return self.ensemble or ((self.starts_from,) if self.starts_from else ())

    @property
    def readings(self) -> tuple[str, ...]:
        """The non-empty phrases of `reading`."""
        return tuple(filter(None, self.reading.values()))


class Download(Settings):
    """A download: its content, address, size, and a note to read first."""

    what: str
    at: str
    size: str = ""
    note: str = ""


class Official(Settings):
    """Official numbers of images and captions of a complete split."""

    images: int
    captions: int
    also: tuple[int, ...] = ()
    """Other numbers of captions that a complete copy may have."""


class Partial(Settings):
    """A known incomplete copy of a split: its number of images, and which data it lacks."""

    split: str
    images: int
    missing: str


class Dataset(Settings):
    """A known data set: its protocols, its official size, where to get it, and its layout on disk."""

    description: str
    known_as: str = ""
    """Its name in papers, printed in LaTeX tables."""
    protocols: Annotated[list[str], Field(min_length=1)]
    """Evaluation protocols; the first is the default."""
    test_splits: list[str] = ["test"]
    """Possible names of the test split on disk; the first that exists is used."""
    captions_per_image: PositiveInt | None = None
    """Number of captions per image to use, as published: the first ones; None: all."""
    noun: str = "image"
    """The noun for the items that its captions describe."""
    embedded: StrictBool = False
    """Whether it is generated and therefore needs no root."""
    where: str = ""
    page: str = ""
    splits: dict[str, Official] = {}
    partial: list[Partial] = []
    sources: list[Download] = []
    trees: dict[str, str] = {}
    """Folder layouts of a root, by format."""


def members(package: str, name: str, kind: type[Member]) -> dict[str, Member]:
    """Return the object `name` of each module of a package that defines it, by module, in alphabetical order.

    >>> from goalgrid.grid.errors import UserError
    >>> members("goalgrid.grid", "UserError", type)["errors"] is UserError
    True
    """
    by_module: dict[str, Member] = {}
    for module in sorted(info.name for info in iter_modules(import_module(package).__path__)):
        member = getattr(import_module(f"{package}.{module}"), name, None)
        if isinstance(member, kind):
            by_module[module] = member
    return by_module


def toml_names(package: str) -> tuple[str, ...]:
    """Return the names of the TOML files in a package's folder, in alphabetical order."""
    return tuple(
        sorted(file.name.removesuffix(".toml") for file in files(package).iterdir() if file.name.endswith(".toml"))
    )


def toml(package: str, name: str) -> dict[str, Any]:
    """Return the content of a TOML file in a package's folder.

    >>> toml("goalgrid.grid.presets", "demo")["name"]
    'demo'
    """
    return deepcopy(_parsed(package, name))


@cache
def _parsed(package: str, name: str) -> dict[str, Any]:
    """The cached content of a TOML file; callers must not change it."""
    return tomllib.loads(files(package).joinpath(f"{name}.toml").read_text(encoding="utf-8"))


@cache
def _shelved(shelf: Shelf) -> dict[str, str]:
    """The package of each file of a shelf, by the file's name: that of the shelf, or of a component."""
    packages = [f"goalgrid.grid.{shelf}", *components.folders(shelf)]
    return dict(sorted((name, package) for package in packages for name in toml_names(package)))


def names(shelf: Shelf) -> tuple[str, ...]:
    return tuple(_shelved(shelf))


def read(shelf: Shelf, name: str) -> dict[str, Any]:
    """Return the content of a shipped file; raise a UserError if no file has this name."""
    check_known(shelf.removesuffix("s"), name, names(shelf))
    return toml(_shelved(shelf)[name], name)


@cache
def recipe(name: str) -> Recipe:
    """Return a shipped recipe, including defaults; see `Catalog.recipe` for a grid's own recipes."""
    return Recipe.model_validate(content(name))


def content(name: str) -> dict[str, Any]:
    """Return a shipped recipe's content merged over that of the recipe it extends, without defaults."""
    return whole_recipe(read("recipes", name), name, lambda other: (other, content(other)))


@dataclass(frozen=True)
class Catalog:
    """All names that a grid can refer to: those shipped, those its plug-ins register, and its own recipes.

    Settings that name user-defined components must be validated by `validated`. To support a new kind of component,
    add a decorator and a `Kind` in `registration`, and read its entries with `registered`.
    """

    uses: tuple[Use, ...] = ()
    own_recipes: Mapping[str, dict[str, Any]] = field(default_factory=dict)
    """Contents of the grid's own recipes by name, merged with those of the recipes they extend."""

    @classmethod
    def of(cls, uses: Iterable[Use]) -> "Catalog":
        """Import plug-ins, and return the catalogue with their registrations.

        Raises:
            UserError: a plug-in cannot be imported, registers nothing, or a name is taken.
        """
        catalog, owners = cls(tuple(uses)), dict[str, str]()
        shipped: dict[Kind, Container[str]] = {"objective": {"goal", *OURS}, "pooling": POOLINGS}
        for use in catalog.uses:
            for one in plugins.registrations(use):
                ours = one.name in shipped.get(one.kind, ())
                if owner := owners.get(one.name) or ("this program" if ours else ""):
                    taken = f"the name {one.name!r} is taken, by {owner}"
                    raise UserError(f"{use.path}: {taken}. Give yours another name, e.g. 'my-{one.name}'.")
                owners[one.name] = use.path
        return catalog

    def with_recipes(self, recipes: Mapping[str, dict[str, Any]]) -> "Catalog":
        """Return the catalogue with these own recipes (merged contents by name)."""
        return replace(self, own_recipes=recipes)

    def registered(self, kind: Kind) -> Mapping[str, Any]:
        """Return the plug-ins' entries of this kind, by name."""
        return self._registered.get(kind, {})

    @cached_property
    def _registered(self) -> dict[Kind, dict[str, Any]]:
        entries: dict[Kind, dict[str, Any]] = {}
        for one in (one for use in self.uses for one in plugins.registrations(use)):
            entries.setdefault(one.kind, {})[one.name] = one.entry
        return entries

    @property
    def registered_names(self) -> list[str]:
        """All names that the plug-ins register, in order of registration."""
        return [one.name for use in self.uses for one in plugins.registrations(use)]

    @cached_property
    def objectives(self) -> Objectives:
        """All objectives by name: shipped and user-defined."""
        return ChainMap(dict(self.registered("objective")), OURS)

    def validated(self, model: type[Model], content: Any) -> Model:
        """Validate settings whose names are looked up in this catalogue; raises pydantic's ValidationError."""
        return model.model_validate(content, context=self.context)

    @property
    def context(self) -> dict[str, "Catalog"]:
        """The validation context for pydantic."""
        return {"catalog": self}

    def recipe_names(self) -> tuple[str, ...]:
        """Return the names of all recipes: the shipped ones, then the grid's own."""
        return *names("recipes"), *self.own_recipes

    def recipe(self, name: str) -> Recipe:
        """Return a recipe, including defaults; raise a UserError if no recipe has this name."""
        return self._own_recipes[name] if name in self.own_recipes else recipe(name)

    @cached_property
    def _own_recipes(self) -> dict[str, Recipe]:
        return {name: self.validated(Recipe, content) for name, content in self.own_recipes.items()}

    def content(self, name: str) -> dict[str, Any]:
        """Return a recipe's content merged over that of the recipe it extends, without defaults."""
        return deepcopy(self.own_recipes[name]) if name in self.own_recipes else content(name)

    def settings(self, name: str) -> dict[str, Any]:
        """Return all settings of a recipe by dotted name, including defaults.

        >>> SHIPPED.settings("vse-2ad")["train.weight_decay"], SHIPPED.settings("vse-inf-wsl")["model.text.init"]
        (0.0001, 'torch')
        """
        return flat(self.recipe(name).model_dump(include={"model", "train"}), _is_whole)

    def lineage(self, name: str) -> list[str]:
        """Return the names of a recipe's ancestors (members, or start recipes), oldest first, then its own name."""
        return [*(ancestor for parent in self.recipe(name).parents for ancestor in self.lineage(parent)), name]

    def reads(self, name: str) -> str:
        """Return a recipe's kind of input: `pictures`, `features` (one vector or regions), `regions`, or `videos`.

        >>> [SHIPPED.reads(name) for name in ("cnn-bow", "fc-bow", "scan", "vse-inf-rg", "ce")]
        ['pictures', 'features', 'regions', 'features and pictures', 'videos']
        """
        kinds = dict[str, None]()
        for model in [self.recipe(member).model for member in self.recipe(name).ensemble or (name,)]:
            of_images = "pictures" if model.image.view is not None else "regions" if model.of_sets else "features"
            kinds[of_images if model.image.noun == "image" else f"{model.image.noun}s"] = None
        return " and ".join(kinds)


SHIPPED = Catalog()
"""The catalogue without plug-ins and own recipes."""


def whole_recipe(
    table: dict[str, Any], place: str, read: Callable[[str], tuple[str, dict[str, Any]]]
) -> dict[str, Any]:
    """Return a recipe merged over the recipe it extends, or an ensemble with its members' settings.

    `starts_from` and `known_as` are not inherited.

    Args:
        place: where the recipe is defined, for messages.
        read: returns the name and merged content of another recipe.
    """
    if "ensemble" in table:
        members = [read(member) for member in _members(table, place)]
        names = [name for name, _ in members]
        table = _combined({**table, "ensemble": names}, [member for _, member in members], place)
    extends = table.pop("extends", None)
    if not extends:
        return table
    base = read(str(extends))[1]
    if ensemble := base.get("ensemble"):
        one = f"extend one of its members: {', '.join(ensemble)}"
        raise UserError(f"recipe {place}: {str(extends)!r} is an ensemble, which trains nothing; {one}.")
    return over({name: value for name, value in base.items() if name not in ("starts_from", "known_as")}, table)


def _members(table: Mapping[str, Any], place: str) -> list[str]:
    members = table["ensemble"]
    names = isinstance(members, list) and all(isinstance(member, str) for member in members)
    if not names or len(members) < 2 or len(set(members)) < len(members):
        raise UserError(f"recipe {place}: ensemble = {members!r} is not a list of two or more different recipes.")
    return list(members)


def _combined(content: dict[str, Any], members: Sequence[dict[str, Any]], place: str) -> dict[str, Any]:
    """An ensemble's content: the data settings of its first member, and the largest GPU share of its members."""
    first = members[0]
    other = {"extends": None, "starts_from": None, **first}
    trains = [
        name for name in ("extends", "starts_from", "model", "train") if content.get(name, other[name]) != other[name]
    ]
    if trains:
        raise UserError(f"recipe {place}: an ensemble trains nothing, so it has no {' and no '.join(trains)}.")
    for name, member in zip(content["ensemble"], members, strict=True):
        if "ensemble" in member:
            raise UserError(
                f"recipe {place}: its member {name!r} is itself an ensemble; list that ensemble's members instead."
            )
    share = max(float(member.get("gpu", 1.0)) for member in members)
    return {"gpu": share, **content, "model": first["model"], "train": first["train"]}


def over(base: dict[str, Any], content: dict[str, Any]) -> dict[str, Any]:
    """Merge `content` over `base`: merge tables, replace values; another encoder, scorer or call resets fields."""
    merged = remaining_fields(base, content)
    for key, value in content.items():
        both = isinstance(value, dict) and isinstance(base.get(key), dict) and not _is_whole(key)
        merged[key] = over(base[key], value) if both else value
    return merged


def _is_whole(field: str) -> bool:
    """Whether the field's value is a table that is replaced as a whole."""
    return field in WHOLE or field in components.tables()


@cache
def dataset(name: str) -> Dataset:
    return Dataset.model_validate(read("datasets", name))


def described(name: str) -> Dataset:
    """Return a shipped data set, or a default description of a user's data set: evaluated on its whole test split.

    >>> described("coco").protocols, described("mine").protocols
    (['coco-5k', 'coco-5x1k'], ['mine-test'])
    """
    return dataset(name) if name in names("datasets") else Dataset(description="", protocols=[f"{name}-test"])


def odd_size(name: str, split: str, images: int, captions: int) -> str:
    """Return how the size of a split differs from the official size; empty if it is equal or unknown.

    >>> odd_size("coco", "test", 5000, 25_000), odd_size("coco", "val", 1, 5)
    ('', '1 image with 5 captions; officially 5,000 with 25,000')
    """
    known = described(name)
    whole = known.splits.get(split)
    if whole is None or (images == whole.images and captions in (whole.captions, *whole.also)):
        return ""
    missing = "".join(
        f". What is missing: {p.missing}" for p in known.partial if (p.split, p.images) == (split, images)
    )
    here = f"{counted(images, known.noun)} with {counted(captions, 'caption')}"
    return f"{here}; officially {whole.images:,} with {whole.captions:,}{missing}"


def published(name: str, sizes: Mapping[str, tuple[int, int]]) -> bool:
    """Return whether splits of these sizes (images, captions) equal the published splits of a data set.

    >>> published("mine", {"test": (1000, 5000)}), published("coco", {"test": (5000, 25_000)})
    (False, True)
    """
    return bool(described(name).splits) and not any(odd_size(name, split, *size) for split, size in sizes.items())


def has_folder(name: str, given: str) -> None:
    """Raise a UserError if a folder is given for a generated data set; `given` is the option or key that names it."""
    if described(name).embedded:
        hint = "Leave this out, or give the name of the data set in that folder."
        raise UserError(f"{given}: data set {name!r} is generated and needs no root. {hint}")


def noun(name: str, model: ModelSettings | None = None) -> str:
    """Return the noun for the items that captions describe: `image`, unless the data set or model has another.

    >>> noun("coco"), noun("mine", recipe("fc-bow").model)
    ('image', 'image')
    """
    noun_of_data = described(name).noun
    return model.image.noun if model and noun_of_data == "image" else noun_of_data


def protocols(name: str) -> list[str]:
    """Return the protocols of a data set, with the default first."""
    return described(name).protocols
