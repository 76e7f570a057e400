"""Map published checkpoints to our models: a TOML file per kind maps tensor names, and tells where to read sizes."""

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
"""Default maximum number of tokens of a caption: published code has none, and COCO and Flickr captions are shorter."""
NAMED = 5
"""Maximum number of tensor names in a message."""


class OptionSetting(Settings):
    """A setting determined by a command-line option of the published code; `values` translates it, if not empty."""

    option: str
    values: dict[str, str] = {}


class CheckpointMap(Settings):
    """A kind of published checkpoint: the recipe it corresponds to, and how its tensor names map to ours."""

    name: str
    """Name of its TOML file."""
    family: str
    description: str
    recipe: str
    """The recipe with the same model."""
    set: dict[str, Any] = {}
    """Model settings that override the recipe's, by dotted name."""
    settings_from: str | None = None
    """Dotted name of a function that derives settings from the weights, if tensor sizes alone are not enough."""
    keys: dict[str, str] = Field(min_length=1)
    """Maps our module names to published ones; {n} is any number. Tensor names within a module must be equal."""
    parted: dict[str, list[str]] = {}
    """For name suffixes of published tensors that stack several of ours: the suffixes of ours, in order."""
    transposed: list[str] = []
    """Published matrices that must be transposed."""
    dropped: dict[str, str] = {}
    """Published modules and tensors that no score depends on, with the reason."""
    sizes: dict[str, tuple[str, int]]
    """Model settings read from the size of a published tensor, given by its name and dimension."""
    image: list[int | tuple[str, int]]
    """The shape of one image: numbers, or sizes of published tensors."""
    rows: tuple[str, int] | None = None
    """Name and dimension of the tensor with one row per word of a vocabulary; None if a tokenizer is used."""
    pieces: tuple[str, int] | None = None
    """Name and dimension of the tensor with one row per token, if only the tokenizer is taken from elsewhere."""
    absent: list[str] = []
    """Tensors that distinguish other kinds with the same names: this kind does not have them."""
    equal: list[tuple[str, int, str, int]] = []
    """Pairs of sizes (tensor, dimension) that are equal in this kind but differ in others with the same names."""
    resized: str = ""
    """Name suffix of tensors whose size depends on the image size; empty if there are none."""
    resized_by: str = ""
    """Dotted name of the function that resizes such a tensor."""
    max_words: int = LONGEST
    """Maximum number of tokens of a caption; longer ones are truncated."""
    options: dict[str, OptionSetting] = {}
    only: dict[str, bool | str | int] = {}
    """Options of the published code that must have this value, if they are given."""

    def ours(self, weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return the mapped tensors by our names, without unknown and dropped ones."""
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
        """Return the tensors by our names, resized to the target model's shapes if its image size differs."""
        return {
            name: components.loaded(self.resized_by)(value, target[name].shape[0])
            if self.resized and name.endswith(self.resized) and name in target and value.shape != target[name].shape
            else value
            for name, value in self.ours(weights).items()
        }

    def words(self, weights: Mapping[str, Tensor]) -> int:
        """Return the vocabulary size of the file; 1 if it is determined by a network with its own tokenizer."""
        table = self.rows or self.pieces
        return size_at(weights, table) if table else 1

    def shape(self, weights: Mapping[str, Tensor]) -> tuple[int, ...]:
        """Return the shape of one input image of the file's model."""
        return tuple(part if isinstance(part, int) else size_at(weights, part) for part in self.image)

    def extra(self, weights: Mapping[str, Tensor]) -> list[str]:
        return [name for name in weights if self._name(name) is None]

    def lacking(self, weights: Mapping[str, Tensor]) -> list[str]:
        return [
            theirs for theirs in self.keys.values() if not any(re.match(_pattern(theirs), name) for name in weights)
        ]

    def unread(self, weights: Mapping[str, Tensor]) -> list[str]:
        """Report tensors that sizes are read from, but that are missing or have too few dimensions."""
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
        """Report missing, extra and differently shaped tensors, compared with a target model; names are ours."""
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
        """Return whether a file is of this kind, judging by tensor names, sizes and options."""
        weights = file.weights
        if self.extra(weights) or self.lacking(weights) or weights.keys() & set(self.absent):
            return False
        asked = {setting.option for setting in self.options.values() if setting.values}
        return not self.unequal(weights) and asked <= file.options.keys()

    def unknown(self, file: CheckpointFile) -> dict[str, tuple[Any, Any]]:
        """Return the training options of a file that differ from this kind's, with both values."""
        return differing({name: file.options.get(name, value) for name, value in self.only.items()}, self.only)

    def unequal(self, weights: Mapping[str, Tensor]) -> list[str]:
        """Report pairs of sizes that differ in the file but must be equal in this kind, and missing tensors."""
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
        """Return our name of a published tensor; empty if it is dropped, None if it is unknown."""
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
    """Return the regular expression for the name prefix of a module's tensors."""
    return re.escape(module).replace(r"\{n\}", r"(?P<n>\d+)", 1).replace(r"\{n\}", r"\d+") + r"(?=\.|$)"


@cache
def maps() -> list[CheckpointMap]:
    """Read the maps in all folders of published checkpoints."""
    folders = ["goalgrid.retrieval.published", *components.folders("published")]
    places = [(folder, name) for folder in folders for name in toml_names(folder)]
    return [CheckpointMap.model_validate({"name": name, **toml(folder, name)}) for folder, name in places]


def families() -> list[str]:
    return list(dict.fromkeys(mapping.family for mapping in maps()))


def fitting_map(file: CheckpointFile) -> CheckpointMap:
    """Return the map that a file matches; raises UserError if there is none."""
    if mapping := next((mapping for mapping in maps() if mapping.fits(file)), None):
        return mapping
    raise UserError(f"{file.path} is not a checkpoint of a known family. Known: {', '.join(families())}.")


def map_of_family(file: CheckpointFile, family: str) -> CheckpointMap:
    """Return the map of this family that a file matches.

    Raises UserError if there is none, with the family that matches or the differences.
    """
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
    """Return the size of a tensor's dimension; 0 if there is no such tensor or dimension."""
    name, dimension = place
    return int(weights[name].shape[dimension]) if name in weights and weights[name].ndim > dimension else 0


def first_few(problems: list[str]) -> list[str]:
    return problems if len(problems) <= NAMED else [*problems[:NAMED], f"and {len(problems) - NAMED:,} more"]
