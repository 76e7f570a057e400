"""Forms of data that a part brings (`Part.data`), beside images and features of images. No form loads torch."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from goalgrid.grid.catalog import Dataset
from goalgrid.grid.settings import parts
from goalgrid.grid.settings.parts import PartRead
from goalgrid.retrieval.data.parts import CheckProgress, Part
from goalgrid.retrieval.splits.pairs import Pairs
from goalgrid.retrieval.splits.problems import Problem

if TYPE_CHECKING:
    from goalgrid.retrieval.data.content import Stamp


class Summed(NamedTuple):
    """What a copy of a data set holds, as its fingerprint is made of it.

    Args:
        marks: by split: a fingerprint of what stands in the place of the images.
        listed: by split: the captions, and what each describes.
        sizes: by split: images and captions.
        problems: leaks and notes.
    """

    marks: Mapping[str, str]
    listed: Mapping[str, Any]
    sizes: Mapping[str, tuple[int, int]]
    problems: Sequence[Problem]


class Form(ABC):
    """How data of this form are found under a root, read and checked."""

    noun: ClassVar[str]
    """What a caption describes."""
    title: ClassVar[str]
    """The form, for a user, as a check reports it."""
    contents: ClassVar[str]
    """What a data set of this form has, for who reads it with a recipe for images."""
    recipes: ClassVar[str]
    """Some recipes that read it."""
    expected: ClassVar[str]
    """Which files say that a folder has this form."""
    shown_by: ClassVar[str]
    """A shipped data set of this form, whose trees show how a folder may look."""

    @classmethod
    @abstractmethod
    def has_features(cls, root: Path) -> bool:
        """Whether there are features of this form."""

    @classmethod
    @abstractmethod
    def begun(cls, root: Path) -> bool:
        """Whether anything of this form is there."""

    @classmethod
    @abstractmethod
    def check(cls, root: Path, reads: Sequence[Any]) -> None:
        """Check that what a model reads is there.

        Raises:
            DataError: it is not; says what is missing.
        """

    @classmethod
    @abstractmethod
    def load(cls, root: Path, test_splits: Sequence[str], reads: Sequence[Any]) -> Pairs:
        """Open the data.

        Raises:
            DataError: there are none, or files cannot be read or do not fit together.
        """

    @classmethod
    @abstractmethod
    def summed(cls, root: Path, test_splits: Sequence[str], stamp: "Stamp") -> Summed:
        """What the copy under this root holds; the files that were read go into the stamp.

        Raises:
            DataError: the data cannot be used; says why.
        """

    @classmethod
    @abstractmethod
    def faults(cls, root: Path, official: Dataset, progress: CheckProgress) -> Part:
        """Everything that is wrong with the copy under this root."""


def forms() -> list[type[Form]]:
    """Every form that is known."""
    return [parts.loaded(part.data) for part in parts.parts().values() if part.data]


def form_of(reads: Sequence[PartRead]) -> type[Form]:
    """The form of the data that a model reads."""
    form: type[Form] = parts.loaded(parts.parts()[reads[0].part].data)
    return form
