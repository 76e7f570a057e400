"""The shipped recipes, presets and data sets, a TOML file each, the folder is the list; and the present grid's recipes.

A grid keeps recipes of the user's own whole; those of the present grid are known beside the shipped recipes.
"""

import tomllib
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from functools import cache
from importlib import import_module
from importlib.resources import files
from pkgutil import iter_modules
from typing import Annotated, Any, Literal, TypeVar

from pydantic import Field, PositiveInt, StrictBool, field_validator

from goalgrid.grid.errors import UserError, check_known, counted
from goalgrid.grid.settings import TrainSettings, components
from goalgrid.grid.settings.base import WHOLE, Gpus, Settings, remaining_fields
from goalgrid.grid.settings.model import ModelSettings
from goalgrid.grid.syntax import flat

Shelf = Literal["recipes", "presets", "datasets"]
Member = TypeVar("Member")

_own: dict[str, dict[str, Any]] = {}
"""Whole contents of the present grid's own recipes."""


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
    """The content of a shipped file."""
    check_known(shelf.removesuffix("s"), name, names(shelf))
    return toml(_shelved(shelf)[name], name)


@cache
def recipe(name: str) -> Recipe:
    return Recipe.model_validate(content(name))


def recipe_names() -> tuple[str, ...]:
    """The shipped recipes and those of the present grid."""
    return *names("recipes"), *_own


def register(recipes: Mapping[str, dict[str, Any]]) -> None:
    """Register a grid's own recipes, whole, by name, in place of another grid's."""
    if recipes != _own:
        _own.clear()
        _own.update(recipes)
        recipe.cache_clear()


def settings(name: str) -> dict[str, Any]:
    """All settings of a recipe by dotted name, defaults filled in.

    >>> settings("vse-2ad")["train.weight_decay"], settings("vse-inf-wsl")["model.text.init"]
    (0.0001, 'torch')
    """
    return flat(recipe(name).model_dump(include={"model", "train"}), _is_whole)


def lineage(name: str) -> list[str]:
    """The recipe, after its members or the recipes that it starts from; the first ancestor comes first."""
    return [*(ancestor for parent in recipe(name).parents for ancestor in lineage(parent)), name]


def content(name: str) -> dict[str, Any]:
    """A recipe's file over the content of the recipe that it extends, without defaults."""
    if name in _own:
        return deepcopy(_own[name])
    return whole_recipe(read("recipes", name), name, lambda other: (other, content(other)))


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


def reads(name: str) -> str:
    """What the images of a recipe have to be: `pictures`, `features` (a vector or regions), `regions`, or `videos`.

    >>> reads("cnn-bow"), reads("fc-bow"), reads("scan"), reads("vse-inf-rg"), reads("ce")
    ('pictures', 'features', 'regions', 'features and pictures', 'videos')
    """
    kinds = dict[str, None]()
    for model in [recipe(member).model for member in recipe(name).ensemble or (name,)]:
        of_images = "pictures" if model.image.view is not None else "regions" if model.of_sets else "features"
        kinds[of_images if model.image.noun == "image" else f"{model.image.noun}s"] = None
    return " and ".join(kinds)


def protocols(name: str) -> list[str]:
    """The protocols of a data set, its default first."""
    return described(name).protocols
