"""The catalogue: what a grid may name.

The shipped recipes, presets and data sets are a TOML file each; the folder is the list. A grid's own `Catalog` adds its
recipes, and what its plug-ins register: made once, when the grid is read, it belongs to the grid and is passed down.
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
    """A backbone with its training settings, and the share of a GPU that it needs."""

    description: str
    known_as: str = ""
    """Its name in papers, which LaTeX prints; a recipe that extends it has its own."""
    gpu: Gpus = 1.0
    starts_from: str | None = None
    """The recipe whose best checkpoint of the same data set, objective and seed this one fine-tunes."""
    ensemble: tuple[str, ...] = ()
    """The recipes whose scores, of the same data set, objective and seed, it averages; it trains nothing itself."""
    words: str = ""
    """The words of the published setting, where they are others than by default: settings of the data set."""
    reading: dict[str, str] = {}
    """Our readings and stand-ins, where the paper is silent, or its code differs; a phrase a topic, empty: none."""
    model: ModelSettings
    train: TrainSettings

    @field_validator("reading", mode="before")
    @classmethod
    def _reading(cls, value: Any) -> Any:
        """A single text is a reading, too."""
        return {"all": value} if isinstance(value, str) else value

    @property
    def parents(self) -> tuple[str, ...]:
        """The recipes whose trials come first: its members, or the recipe that it starts from."""
        return self.ensemble or ((self.starts_from,) if self.starts_from else ())

    @property
    def readings(self) -> tuple[str, ...]:
        """The phrases of its reading."""
        return tuple(filter(None, self.reading.values()))


class Download(Settings):
    """Something to download: what it is, where from, how large, and what to know before."""

    what: str
    at: str
    size: str = ""
    note: str = ""


class Official(Settings):
    """How many images and captions a whole split has."""

    images: int
    captions: int
    also: tuple[int, ...] = ()
    """Other numbers of captions that a whole copy may have."""


class Partial(Settings):
    """A known incomplete copy of a split: its number of images, and what is missing then."""

    split: str
    images: int
    missing: str


class Dataset(Settings):
    """A data set by name: its protocols, its official size, where users find it and how it lies on disk."""

    description: str
    known_as: str = ""
    """Its name in papers, which LaTeX prints."""
    protocols: Annotated[list[str], Field(min_length=1)]
    """The first is the default."""
    test_splits: list[str] = ["test"]
    """Names of the test split on disk, the first that exists counts."""
    captions_per_image: PositiveInt | None = None
    """Only the first so many captions of an image are used, as published; None: all."""
    noun: str = "image"
    """What its captions describe."""
    embedded: StrictBool = False
    """Whether it is generated, so that no root is needed."""
    where: str = ""
    page: str = ""
    splits: dict[str, Official] = {}
    partial: list[Partial] = []
    sources: list[Download] = []
    trees: dict[str, str] = {}
    """How a root may look, by format."""


def members(package: str, name: str, kind: type[Member]) -> dict[str, Member]:
    """The values of `name` in the modules of a package, by module, in alphabetical order; the others are helpers.

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
    """Names of the TOML files in a package's folder, in alphabetical order."""
    return tuple(
        sorted(file.name.removesuffix(".toml") for file in files(package).iterdir() if file.name.endswith(".toml"))
    )


def toml(package: str, name: str) -> dict[str, Any]:
    """The content of a TOML file in a package's folder.

    >>> toml("goalgrid.grid.presets", "demo")["name"]
    'demo'
    """
    return deepcopy(_parsed(package, name))


@cache
def _parsed(package: str, name: str) -> dict[str, Any]:
    """The same; for readers that do not change it."""
    return tomllib.loads(files(package).joinpath(f"{name}.toml").read_text(encoding="utf-8"))


@cache
def _shelved(shelf: Shelf) -> dict[str, str]:
    """The package of each file of a shelf, by the file's name: ours, or that of a part."""
    packages = [f"goalgrid.grid.{shelf}", *components.folders(shelf)]
    return dict(sorted((name, package) for package in packages for name in toml_names(package)))


def names(shelf: Shelf) -> tuple[str, ...]:
    return tuple(_shelved(shelf))


def read(shelf: Shelf, name: str) -> dict[str, Any]:
    """Return the content of a shipped file; UserError: no file has this name."""
    check_known(shelf.removesuffix("s"), name, names(shelf))
    return toml(_shelved(shelf)[name], name)


@cache
def recipe(name: str) -> Recipe:
    """Return a shipped recipe, defaults filled in; a grid's catalogue knows the grid's own, too."""
    return Recipe.model_validate(content(name))


def content(name: str) -> dict[str, Any]:
    """Return a shipped recipe's file over the content of the recipe that it extends, without defaults."""
    return whole_recipe(read("recipes", name), name, lambda other: (other, content(other)))


@dataclass(frozen=True)
class Catalog:
    """What a grid may name: what is shipped, what its plug-ins register, and its own recipes.

    Settings that name something of the user's own are validated by `validated`. To register something new, a pair
    weight say, give it a decorator and a `Kind` in `registration`, and read it here by `registered`.
    """

    uses: tuple[Use, ...] = ()
    own_recipes: Mapping[str, dict[str, Any]] = field(default_factory=dict)
    """Whole contents by name."""

    @classmethod
    def of(cls, uses: Iterable[Use]) -> "Catalog":
        """Import plug-ins, and return the catalogue with what they register.

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
        """Return the catalogue with these own recipes, whole contents by name."""
        return replace(self, own_recipes=recipes)

    def registered(self, kind: Kind) -> Mapping[str, Any]:
        """Return the entries of this kind that the plug-ins register, by name."""
        return self._registered.get(kind, {})

    @cached_property
    def _registered(self) -> dict[Kind, dict[str, Any]]:
        entries: dict[Kind, dict[str, Any]] = {}
        for one in (one for use in self.uses for one in plugins.registrations(use)):
            entries.setdefault(one.kind, {})[one.name] = one.entry
        return entries

    @property
    def registered_names(self) -> list[str]:
        """All names that the plug-ins register, in their order."""
        return [one.name for use in self.uses for one in plugins.registrations(use)]

    @cached_property
    def objectives(self) -> Objectives:
        """Every objective by name: the shipped ones, then the user's own."""
        return ChainMap(dict(self.registered("objective")), OURS)

    def validated(self, model: type[Model], content: Any) -> Model:
        """Return settings in which names mean what they mean in this catalogue; or pydantic's error."""
        return model.model_validate(content, context=self.context)

    @property
    def context(self) -> dict[str, "Catalog"]:
        """The context for pydantic's other ways to validate."""
        return {"catalog": self}

    def recipe_names(self) -> tuple[str, ...]:
        """Return the names of all recipes: the shipped ones, then the grid's own."""
        return *names("recipes"), *self.own_recipes

    def recipe(self, name: str) -> Recipe:
        """Return a recipe, defaults filled in; UserError: no recipe has this name."""
        return self._own_recipes[name] if name in self.own_recipes else recipe(name)

    @cached_property
    def _own_recipes(self) -> dict[str, Recipe]:
        return {name: self.validated(Recipe, content) for name, content in self.own_recipes.items()}

    def content(self, name: str) -> dict[str, Any]:
        """Return the whole content of a recipe, without defaults."""
        return deepcopy(self.own_recipes[name]) if name in self.own_recipes else content(name)

    def settings(self, name: str) -> dict[str, Any]:
        """Return all settings of a recipe by dotted name, defaults filled in.

        >>> SHIPPED.settings("vse-2ad")["train.weight_decay"], SHIPPED.settings("vse-inf-wsl")["model.text.init"]
        (0.0001, 'torch')
        """
        return flat(self.recipe(name).model_dump(include={"model", "train"}), _is_whole)

    def lineage(self, name: str) -> list[str]:
        """Return the recipe, after its members or the recipes that it starts from; the first ancestor comes first."""
        return [*(ancestor for parent in self.recipe(name).parents for ancestor in self.lineage(parent)), name]

    def reads(self, name: str) -> str:
        """Return what a recipe's images are: `pictures`, `features` (a vector or regions), `regions`, or `videos`.

        >>> [SHIPPED.reads(name) for name in ("cnn-bow", "fc-bow", "scan", "vse-inf-rg", "ce")]
        ['pictures', 'features', 'regions', 'features and pictures', 'videos']
        """
        kinds = dict[str, None]()
        for model in [self.recipe(member).model for member in self.recipe(name).ensemble or (name,)]:
            of_images = "pictures" if model.image.view is not None else "regions" if model.of_sets else "features"
            kinds[of_images if model.image.noun == "image" else f"{model.image.noun}s"] = None
        return " and ".join(kinds)


SHIPPED = Catalog()
"""What every grid may name."""


def whole_recipe(
    table: dict[str, Any], place: str, read: Callable[[str], tuple[str, dict[str, Any]]]
) -> dict[str, Any]:
    """A recipe over the recipe that it extends, or with its members' settings; `read` gives the others.

    A recipe that is extended hands down no parent and no name.
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
        raise UserError(f"recipe {place}: ensemble = {members!r} is no list of two or more recipes, each named once.")
    return list(members)


def _combined(content: dict[str, Any], members: Sequence[dict[str, Any]], place: str) -> dict[str, Any]:
    """An ensemble's content: data are read as its first member reads them, on a GPU share that every member fits in."""
    first = members[0]
    other = {"extends": None, "starts_from": None, **first}
    trains = [
        name for name in ("extends", "starts_from", "model", "train") if content.get(name, other[name]) != other[name]
    ]
    if trains:
        raise UserError(f"recipe {place}: an ensemble trains nothing, so it has no {' and no '.join(trains)}.")
    for name, member in zip(content["ensemble"], members, strict=True):
        if "ensemble" in member:
            raise UserError(f"recipe {place}: its member {name!r} is an ensemble itself; name the members of that.")
    share = max(float(member.get("gpu", 1.0)) for member in members)
    return {"gpu": share, **content, "model": first["model"], "train": first["train"]}


def over(base: dict[str, Any], content: dict[str, Any]) -> dict[str, Any]:
    """Tables are merged, values replaced; another encoder, scorer or call drops fields of its table."""
    merged = remaining_fields(base, content)
    for key, value in content.items():
        both = isinstance(value, dict) and isinstance(base.get(key), dict) and not _is_whole(key)
        merged[key] = over(base[key], value) if both else value
    return merged


def _is_whole(field: str) -> bool:
    """Whether its value is a table that counts as one value."""
    return field in WHOLE or field in components.tables()


@cache
def dataset(name: str) -> Dataset:
    return Dataset.model_validate(read("datasets", name))


def described(name: str) -> Dataset:
    """A shipped data set; or a user's own, of which the name alone is known: its protocol is its whole test split.

    >>> described("coco").protocols, described("mine").protocols
    (['coco-5k', 'coco-5x1k'], ['mine-test'])
    """
    return dataset(name) if name in names("datasets") else Dataset(description="", protocols=[f"{name}-test"])


def odd_size(name: str, split: str, images: int, captions: int) -> str:
    """How the size of a split differs from the official one; empty if it does not, or none is known.

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
    """Whether splits with so many images and captions are the published ones of a data set.

    >>> published("mine", {"test": (1000, 5000)}), published("coco", {"test": (5000, 25_000)})
    (False, True)
    """
    return bool(described(name).splits) and not any(odd_size(name, split, *size) for split, size in sizes.items())


def has_folder(name: str, given: str) -> None:
    """Check that a data set lies in a folder, because the user gave one: `--root shapes=/data`."""
    if described(name).embedded:
        hint = "Leave this out, or name the data set that lies there."
        raise UserError(f"{given}: data set {name!r} is generated and needs no root. {hint}")


def noun(name: str, model: ModelSettings | None = None) -> str:
    """The noun for what captions describe: `image`, unless the data set or the model says otherwise.

    >>> noun("coco"), noun("mine", recipe("fc-bow").model)
    ('image', 'image')
    """
    noun_of_data = described(name).noun
    return model.image.noun if model and noun_of_data == "image" else noun_of_data


def protocols(name: str) -> list[str]:
    """The protocols of a data set, its default first."""
    return described(name).protocols
