"""From a checkpoint of others to our model: a TOML file says which name of ours each of theirs is, and which sizes."""

import re
from collections.abc import Mapping
from functools import cache
from typing import Any

from pydantic import Field
from torch import Tensor

from goalgrid.grid.catalog import toml, toml_names
from goalgrid.grid.errors import UserError, check_known, several
from goalgrid.grid.settings import components
from goalgrid.grid.settings.base import Settings
from goalgrid.grid.syntax import differing
from goalgrid.retrieval.published.checkpoint_files import CheckpointFile

LONGEST = 200
"""Words or word pieces at which captions are cut: the peers cut none, and no caption of COCO or Flickr is as long."""
NAMED = 5
"""Names of tensors in a message, at most."""


class OptionSetting(Settings):
    """A setting that an option of theirs decides: by its values, ours; empty: the value itself."""

    option: str
    values: dict[str, str] = {}


class CheckpointMap(Settings):
    """A kind of checkpoint: which recipe of ours it is, and which name of ours each of theirs is."""

    name: str
    """That of its file."""
    family: str
    description: str
    recipe: str
    """The recipe of ours whose model it is."""
    set: dict[str, Any] = {}
    """Settings of the model over those of the recipe, by dotted name."""
    settings_from: str | None = None
    """Dotted name of what reads settings from weights where no single size is a setting; None: nothing."""
    keys: dict[str, str] = Field(min_length=1)
    """Their module by ours; {n} means any number. All tensors of a module have the same names in both."""
    parted: dict[str, list[str]] = {}
    """Endings of the names of their tensors that hold several of ours, one below the other; the endings of ours."""
    transposed: list[str] = []
    """Matrices of theirs whose rows are our columns."""
    dropped: dict[str, str] = {}
    """Modules and tensors of theirs that no score depends on, with the reason."""
    sizes: dict[str, tuple[str, int]]
    """Settings of the model that are the size of a tensor of theirs: its name and dimension."""
    image: list[int | tuple[str, int]]
    """The shape of one image: numbers, or the size of a tensor of theirs."""
    rows: tuple[str, int] | None = None
    """The tensor with a row for each word of a vocabulary, and the dimension; None: it reads a tokenizer's pieces."""
    pieces: tuple[str, int] | None = None
    """The same for the pieces of a tokenizer, where the tokenizer alone comes from elsewhere."""
    absent: list[str] = []
    """Tensors that kinds with the same names have, and this kind has not."""
    equal: list[tuple[str, int, str, int]] = []
    """Pairs of sizes, each a tensor and a dimension, that are equal here, and differ in kinds with the same names."""
    resized: str = ""
    """Endings of the names of tensors that grow with the picture; empty: no tensor does."""
    resized_by: str = ""
    """Dotted name of what resizes such a tensor."""
    max_words: int = LONGEST
    """Words or word pieces at which captions are cut."""
    options: dict[str, OptionSetting] = {}
    only: dict[str, bool | str | int] = {}
    """Options of theirs that must have this value, if they are given."""

    def ours(self, weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return the tensors that the map knows, by our names; without those that are dropped."""
        tensors = dict[str, Tensor]()
        for theirs, value in weights.items():
            if name := self._name(theirs):
                tensors |= self._parts(name, value.T if theirs in self.transposed and value.ndim == 2 else value)
        return tensors

    def _parts(self, name: str, value: Tensor) -> dict[str, Tensor]:
        for ending, ours in self.parted.items():
            if name.endswith(f".{ending}"):
                before = name.removesuffix(ending)
                return {f"{before}{suffix}": part for suffix, part in zip(ours, value.chunk(len(ours)), strict=False)}
        return {name: value}

    def fitted(self, weights: Mapping[str, Tensor], target: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return the tensors by our names, resized to the target model's shapes for larger pictures."""
        return {
            name: components.loaded(self.resized_by)(value, target[name].shape[0])
            if self.resized and name.endswith(self.resized) and name in target and value.shape != target[name].shape
            else value
            for name, value in self.ours(weights).items()
        }

    def words(self, weights: Mapping[str, Tensor]) -> int:
        """Return how many words or word pieces the file knows; 1: a network with its own tokenizer decides."""
        table = self.rows or self.pieces
        return size_at(weights, table) if table else 1

    def shape(self, weights: Mapping[str, Tensor]) -> tuple[int, ...]:
        """Return the shape of one image that the file's model reads."""
        return tuple(part if isinstance(part, int) else size_at(weights, part) for part in self.image)

    def extra(self, weights: Mapping[str, Tensor]) -> list[str]:
        return [name for name in weights if self._name(name) is None]

    def lacking(self, weights: Mapping[str, Tensor]) -> list[str]:
        return [
            theirs for theirs in self.keys.values() if not any(re.match(_pattern(theirs), name) for name in weights)
        ]

    def unread(self, weights: Mapping[str, Tensor]) -> list[str]:
        """Report tensors that give sizes, but are missing or have too few dimensions."""
        places = [*self.sizes.values(), *(part for part in self.image if not isinstance(part, int))]
        places += [place for place in (self.rows, self.pieces) if place]
        return [
            f"{name} is {tuple(weights[name].shape)}" if name in weights else f"missing: {name}"
            for name, dimension in dict(places).items()
            if name not in weights or weights[name].ndim <= dimension
        ]

    def theirs(self, name: str) -> str:
        for ours, theirs in self._longest:
            if match := re.match(_pattern(ours), name):
                rest = name[match.end() :]
                whole = next(
                    (f".{whole} ({rest[1:]})" for whole, endings in self.parted.items() if rest[1:] in endings), rest
                )
                return theirs.format(**match.groupdict()) + whole
        return name

    def misfits(self, weights: Mapping[str, Tensor], target: Mapping[str, Tensor], where: str) -> list[str]:
        """Report what is missing, extra or of another shape among weights by our names, compared to a target model."""
        missing = [
            f"missing: {self.theirs(name)}"
            for name in target
            if name not in weights and not name.endswith("num_batches_tracked")  # torch before 0.4.1 had none
        ]
        extra = [f"extra: {self.theirs(name)}" for name in weights if name not in target]
        other = [
            f"{self.theirs(name)} is {tuple(value.shape)} in the file and {tuple(target[name].shape)} {where}"
            for name, value in weights.items()
            if name in target and target[name].shape != value.shape
        ]
        return [*missing, *extra, *other]

    def fits(self, file: CheckpointFile) -> bool:
        """Return whether a file is of this kind, by names, sizes and options."""
        weights = file.weights
        if self.extra(weights) or self.lacking(weights) or weights.keys() & set(self.absent):
            return False
        asked = {setting.option for setting in self.options.values() if setting.values}
        return not self.unequal(weights) and asked <= file.options.keys()

    def unknown(self, file: CheckpointFile) -> dict[str, tuple[Any, Any]]:
        """Return the options of a file's training that differ, with those of this kind."""
        return differing({name: file.options.get(name, value) for name, value in self.only.items()}, self.only)

    def unequal(self, weights: Mapping[str, Tensor]) -> list[str]:
        """Report sizes that differ but are equal in this kind, and the missing tensors of these sizes."""
        named = dict.fromkeys(name for one, _, other, _ in self.equal for name in (one, other))
        sizes = [
            (one, size_at(weights, (one, m)), other, size_at(weights, (other, n))) for one, m, other, n in self.equal
        ]
        return [f"missing: {name}" for name in named if name not in weights] or [
            f"{one} has {size:,} and {other} {their:,} where this kind has the same number"
            for one, size, other, their in sizes
            if size != their
        ]

    def _name(self, theirs: str) -> str | None:
        """Our name of a tensor of theirs; empty: it is dropped; None: the map does not know it."""
        if any(re.match(_pattern(name), theirs) for name in self.dropped):
            return ""
        for module, pattern in self._longest:
            if match := re.match(_pattern(pattern), theirs):
                return module.format(**match.groupdict()) + theirs[match.end() :]
        return None

    @property
    def _longest(self) -> list[tuple[str, str]]:
        return sorted(self.keys.items(), key=lambda pair: -len(pair[1]))


@cache
def _pattern(module: str) -> str:
    """What the names of a module's tensors begin with."""
    return re.escape(module).replace(r"\{n\}", r"(?P<n>\d+)", 1).replace(r"\{n\}", r"\d+") + r"(?=\.|$)"


@cache
def maps() -> list[CheckpointMap]:
    """Read all maps: the folders are the list."""
    folders = ["goalgrid.retrieval.published", *components.folders("published")]
    places = [(folder, name) for folder in folders for name in toml_names(folder)]
    return [CheckpointMap.model_validate({"name": name, **toml(folder, name)}) for folder, name in places]


def families() -> list[str]:
    return list(dict.fromkeys(mapping.family for mapping in maps()))


def fitting_map(file: CheckpointFile) -> CheckpointMap:
    """Return the map that a file fits; UserError: it fits no map."""
    if mapping := next((mapping for mapping in maps() if mapping.fits(file)), None):
        return mapping
    raise UserError(f"{file.path} is not a checkpoint of a known family. Known: {', '.join(families())}.")


def map_of_family(file: CheckpointFile, family: str) -> CheckpointMap:
    """Return the map of this family that a file fits; UserError: which family fits, or what the file lacks."""
    if family:
        check_known("family", family, families(), where="in --as")
    fitting = [mapping for mapping in maps() if mapping.fits(file)]
    for mapping in fitting:
        if mapping.family == family:
            return mapping
    if fitting:
        likely = f"{fitting[0].description}. Give --as {fitting[0].family}."
        raise UserError(
            f"{file.path} is not {family}: it looks like {likely}" if family else f"{file.path} looks like {likely}"
        )
    if not family:
        raise UserError(
            f"cannot tell the family of the checkpoint {file.path}. Give --as FAMILY: {', '.join(families())}."
        )
    members = [mapping for mapping in maps() if mapping.family == family]
    nearest = min(members, key=lambda mapping: len(mapping.extra(file.weights)) + len(mapping.lacking(file.weights)))
    problems = [f"missing: {name}" for name in nearest.lacking(file.weights)]
    problems += [f"extra: {name}" for name in nearest.extra(file.weights)]
    problems = problems or nearest.unequal(file.weights)
    problems = problems or [
        f"its options lack {setting.option}, which decides {name}"
        for name, setting in nearest.options.items()
        if setting.option not in file.options
    ]
    raise several(f"{file.path} is not a known {family} checkpoint ({nearest.description})", first_few(problems))


def size_at(weights: Mapping[str, Tensor], place: tuple[str, int]) -> int:
    """Return the size of a tensor's dimension; 0: there is no such tensor or dimension."""
    name, dimension = place
    return int(weights[name].shape[dimension]) if name in weights and weights[name].ndim > dimension else 0


def first_few(problems: list[str]) -> list[str]:
    return problems if len(problems) <= NAMED else [*problems[:NAMED], f"and {len(problems) - NAMED:,} more"]
