"""Forms of data that a part brings (`Part.data`), beside images and features of images. No form loads torch."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

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


@dataclass(frozen=True)
class Form:
    """How data of this form are found under a root, read and checked. `check`, `load` and `summed` raise DataError.

    Args:
        noun: what a caption describes.
        title: the form, for a user, as a check reports it.
        contents: what data of this form are, for who reads them with a recipe for images.
        recipes: some recipes that read it.
        expected: which files say that a folder has this form.
        shown_by: a shipped data set of this form, whose trees show how a folder may look.
        has_features: whether there are features of this form under a root.
        begun: whether anything of this form is there.
        check: whether all that a model reads is there.
        load: opens the data, of these test splits, for what a model reads.
        summed: what a copy holds; the files that were read go into the stamp.
        faults: everything that is wrong with a copy.
    """

    noun: str
    title: str
    contents: str
    recipes: str
    expected: str
    shown_by: str
    has_features: Callable[[Path], bool]
    begun: Callable[[Path], bool]
    check: Callable[[Path, Sequence[Any]], None]
    load: Callable[[Path, Sequence[str], Sequence[Any]], Pairs]
    summed: "Callable[[Path, Sequence[str], Stamp], Summed]"
    faults: Callable[[Path, Dataset, CheckProgress], Part]


def forms() -> list[Form]:
    """Every form that is known."""
    return [parts.loaded(part.data) for part in parts.parts().values() if part.data]


def form_of(reads: Sequence[PartRead]) -> Form:
    """The form of the data that a model reads."""
    form: Form = parts.loaded(parts.parts()[reads[0].part].data)
    return form
