"""Find the shapes of a data set for an estimate: from the data on this machine, or from its publication."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import mean
from typing import Any, Literal

from goalgrid.grid import catalog
from goalgrid.grid.columns import Columns
from goalgrid.grid.expansion import Shared
from goalgrid.runners.gpu.architectures import WORDS, expected_image

PIECES = 30_522
"""Size of BERT's vocabulary."""
PER_WORD = 1.2
"""Word pieces per word, without the two special tokens."""
TYPICAL, LONGEST = 12, 40
"""Assumed words per caption: the mean, and the mean of the longest batch (COCO, Flickr30K)."""


@dataclass(frozen=True)
class Shapes:
    """The shapes of a data set, as a model reads it.

    Args:
        image: shape of an image as the model reads it.
        words: size of the vocabulary, or width of the caption features.
        typical, longest: words or pieces per caption: the mean, and the mean of the batch of the longest captions.
        images, texts: sizes of the largest evaluated split.
        captions: token indices, or the kind of `output` of a frozen network.
    """

    image: tuple[int, ...]
    words: int
    typical: int
    longest: int
    images: int
    texts: int = 0
    captions: Literal["indices", "states", "projected"] = "indices"


def shapes_of(
    shared: Shared,
    root: Path | None,
    largest: tuple[int, int],
    of_network: Callable[..., Any],
    columns: Columns = (),
    copies: Path | None = None,
) -> tuple[Shapes, dict[str, list[str]]]:
    """Return the shapes of a data set as a model reads it, and the assumptions made if it is not on this machine.

    Args:
        root: the data set's folder; None: not on this machine, or not needed.
        largest: images and captions of the largest evaluated split.
        of_network: returns the shape of a frozen network's image features or, with a number of tokens, the width of its
            caption features.
        columns, copies: columns of caption tables and their cached copies, as for `opening.load`.

    Raises UserError if the data cannot be read.
    """
    from goalgrid.retrieval.data import opening
    from goalgrid.retrieval.words import text_readers
    from goalgrid.retrieval.words.splitting import words as words_of

    data, image, text = shared.dataset, shared.model.image, shared.model.text
    cut = text.longest(data.max_words)
    here = root is not None or catalog.described(data.name).embedded
    typical, longest, words = float(TYPICAL), LONGEST, WORDS.get(data.name, 10_000)
    assumed = [] if here else [f"captions of {TYPICAL} words, at most {LONGEST}"]
    if here:
        # Captions and the shape of an image are read alone, so that no array of features is read for repeated rows.
        tables: dict[str, Any] = {"columns": columns, "copies": copies}
        pairs = opening.load(data.name, root, image.view, reads=image.reads, keep=False, repeats=(), **tables)
        captions = pairs.train.captions
        lengths = sorted(min(len(words_of(caption)), cut) for caption in captions)
        typical, longest = mean(lengths), round(mean(lengths[-shared.train.batch_size :]))
        if text.tokenizer is None:
            words = len(text_readers.build(text, captions, places={}, min_count=data.min_count))
    if text.tokenizer is not None:
        typical, longest, words = PER_WORD * typical + 2, round(PER_WORD * longest) + 2, PIECES
    given: Any = "indices"
    if text.feature_network:
        given, words = text.feature_network.output, of_network(text.feature_network, round(typical))
    shape: tuple[int, ...]
    if image.feature_network:
        shape = of_network(image.feature_network)
    elif here:
        shape = tuple(pairs.train.images.shape)
    else:
        shape = expected_image(shared.model)
        if not image.reads and not image.view:
            assumed.append(f"features of {' x '.join(map(str, shape))} values per image")
    longest = min(longest, cut + 2)
    shapes = Shapes(shape, words, round(typical), longest, *largest, given)
    return shapes, {data.name: assumed} if assumed else {}
