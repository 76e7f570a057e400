"""Which reader turns captions into indices for which text encoder."""

from collections.abc import Sequence

from grid.encoders import TextSettings
from retrieval.encoders import pretrained
from retrieval.words.tokens import CaptionReader
from retrieval.words.vocabulary import Vocabulary
from retrieval.words.wordpieces import WordPieces


def build(
    settings: TextSettings, captions: Sequence[str], *, min_count: int, places: pretrained.Places
) -> CaptionReader:
    """The pretrained network's own tokenizer, else a vocabulary of the training captions.

    Raises:
        UserError: the weights' tokenizer cannot be found.
    """
    network = settings.tokenizer
    if network is not None:
        return WordPieces(pretrained.tokenizer(network, places), network.weights)
    masked = settings.word_drop > 0
    return Vocabulary.build(captions, min_count=min_count, boundaries=settings.boundaries, masked=masked)
