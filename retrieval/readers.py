"""Which reader turns captions into indices for which text encoder."""

from collections.abc import Sequence

from grid.encoders import RANDOM, TextSettings, TransformerSettings
from retrieval import pretrained
from retrieval.tokens import Reader
from retrieval.vocabulary import Vocabulary
from retrieval.wordpieces import WordPieces


def build(settings: TextSettings, captions: Sequence[str], *, min_count: int, places: pretrained.Places) -> Reader:
    """The pretrained network's own tokenizer, else a vocabulary of the training captions.

    Raises:
        UserError: the weights' tokenizer cannot be found.
    """
    masked = settings.word_drop > 0
    if not isinstance(settings, TransformerSettings):
        return Vocabulary.build(captions, min_count=min_count, boundaries=settings.boundaries, masked=masked)
    if settings.weights == RANDOM:
        return Vocabulary.build(captions, min_count=min_count, boundaries=True, masked=masked)
    return WordPieces(pretrained.tokenizer(settings, places), settings.weights)
