"""Split captions into words, and count the words missing from a vocabulary. This module does not import torch."""

import re
from collections import Counter
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from itertools import chain
from unicodedata import category, normalize

from goalgrid.grid import optional_dependencies

Splitter = Callable[[str], list[str]]

_ASCII = re.compile(r"[a-z0-9]+(?:'[a-z]+)?")
_SPACED = re.compile(r"[^ ']+(?:'[^ '\d]+)?")
"""Pattern of a word in text translated by `_SEPARATED`."""
_UNSEEN = "\N{ZERO WIDTH NON-JOINER}\N{ZERO WIDTH JOINER}\N{SOFT HYPHEN}\N{VARIATION SELECTOR-16}"
"""Zero-width characters, inside words or after emoji."""


class _Separated(dict[int, str]):
    """A table for `str.translate` that replaces everything except letters, marks, digits and apostrophes by a space."""

    def __missing__(self, code: int) -> str:
        self[code] = chr(code) if category(chr(code))[0] in "LMN" else " "
        return self[code]


_SEPARATED = _Separated(
    {ord("'"): "'", ord("\N{RIGHT SINGLE QUOTATION MARK}"): "'"} | dict.fromkeys(map(ord, _UNSEEN), "")
)


def words(caption: str) -> list[str]:
    """Split a caption into lower-case words and numbers, without punctuation.

    A word is a run of letters, marks and digits (Unicode categories L, M and N; `\\w` would split at the marks of
    Hindi, Thai and Arabic) in NFC, including parts joined by an apostrophe. A run of Chinese characters is one word.

    >>> words("A dog's ball, 2 cats."), words("Ein Bär läuft – à l’ombre")
    (['a', "dog's", 'ball', '2', 'cats'], ['ein', 'bär', 'läuft', 'à', "l'ombre"])
    """
    lower = caption.lower()
    if lower.isascii():
        return _ASCII.findall(lower)
    return _SPACED.findall(normalize("NFC", lower).translate(_SEPARATED))


def nltk_words(caption: str) -> list[str]:
    """Split a caption into lower-case words and punctuation, like `nltk.word_tokenize` on one sentence.

    >>> nltk_words("A dog's ball, 2 cats.")
    ['a', 'dog', "'s", 'ball', ',', '2', 'cats', '.']
    """
    optional_dependencies.require("dataset.words = nltk", "nltk")
    from nltk.tokenize import NLTKWordTokenizer

    return NLTKWordTokenizer().tokenize(caption.lower())


MOST_UNKNOWN = 0.5
"""Share of unknown validation words above which a warning is given."""
READ_PIECES = (
    "for scripts without spaces between words, such as Chinese or Thai, where a caption is one long word, use a "
    'pretrained text encoder, which reads subwords, e.g. model.text.encoder = "transformer" and model.text.weights = '
    '"google-bert/bert-base-multilingual-cased"'
)
"""Advice for captions in scripts without spaces."""
SPLITTERS: dict[str, Splitter] = {"plain": words, "nltk": nltk_words}
"""Splitters of captions into words, by `dataset.words`."""


def frequent(captions: Iterable[str], min_count: int, split: Splitter = words) -> list[str]:
    """List the words that occur at least `min_count` times, most frequent first, ties in alphabetical order."""
    counts = Counter(chain.from_iterable(map(split, captions)))
    return sorted(
        (word for word, count in counts.items() if count >= min_count), key=lambda word: (-counts[word], word)
    )


def unknown_share(captions: Sequence[str], known: Container[str], split: Splitter = words) -> float:
    """Return the share of unknown words in the captions, from 0 to 1; an empty caption counts as one unknown word.

    >>> unknown_share(["a dog", "!", "a cat runs"], {"a", "dog"})
    0.5
    """
    read = [word for caption in captions for word in split(caption) or [""]]
    return sum(word not in known for word in read) / max(1, len(read))


def spelled_shares(shares: Mapping[str, float]) -> str:
    """Format the shares of unknown words by split.

    >>> spelled_shares({"val": 0.0123, "test": 0.5})
    'unknown words: 1.2 % of val, 50.0 % of test'
    """
    return f"unknown words: {', '.join(f'{100 * share:.1f} % of {split}' for split, share in shares.items())}"
