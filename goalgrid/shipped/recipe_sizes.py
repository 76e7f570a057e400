"""`goalgrid recipes --parameters`: the number of weights of each recipe's model, before anything is trained."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from typing import TYPE_CHECKING

from goalgrid.grid import catalog
from goalgrid.runners.gpu.shapes_of_data import REGIONS, VECTOR, WORDS, reads_regions

if TYPE_CHECKING:
    from goalgrid.runners.gpu.architectures import ModelSize

VOCABULARY = WORDS["coco"]


def sizes(names: Sequence[str]) -> "dict[str, ModelSize]":
    """The size of each recipe's model on MS-COCO; of an ensemble, of its members together.

    Raises:
        UserError: the architecture of pretrained weights is not known here.
    """
    return {name: _size(name) for name in names}


def _size(name: str) -> "ModelSize":
    from goalgrid.runners.gpu.architectures import ModelSize, size_of

    recipe = catalog.recipe(name)
    if recipe.ensemble:
        return sum(map(_size, recipe.ensemble), ModelSize(0, 0))
    shape = REGIONS if reads_regions(recipe.model) else VECTOR
    size = size_of(recipe.model, shape, VOCABULARY)
    return size if recipe.train.epochs else replace(size, learning=0)


def lines(sizes: "Mapping[str, ModelSize]") -> Iterator[str]:
    """A line for each recipe, in millions of weights, and what the columns are."""
    width = max(map(len, sizes))
    titles = {"parameters": "weights (M)", "learning": "learning (M)", "frozen": "frozen (M)"}
    yield f"{'':{width}}  " + "  ".join(f"{title:>12}" for title in titles.values())
    for name, size in sizes.items():
        numbers = asdict(size)
        yield f"{name:{width}}  " + "  ".join(f"{numbers[column] / 1e6:12.2f}" for column in titles)
    yield (
        "weights: of the model in training, as its record has them; learning: those that training changes; frozen: of "
        "networks that read each image and caption once, before training, and are not among the weights. Of models "
        f"that learn words: with MS-COCO's vocabulary of {VOCABULARY:,} words."
    )
