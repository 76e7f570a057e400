"""What a caption's words are, and how many of them a vocabulary does not know. This module loads no torch."""

import re
from collections import Counter
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from itertools import chain
from unicodedata import category, normalize

from goalgrid.grid import optional_dependencies

Splitter = Callable[[str], list[str]]

_ASCII = re.compile(r"[a-z0-9]+(?:'[a-z]+)?")
_SPACED = re.compile(r"[^ ']+(?:'[^ '\d]+)?")
"""The same in text that `_SEPARATED` has translated."""
_UNSEEN = "\N{ZERO WIDTH NON-JOINER}\N{ZERO WIDTH JOINER}\N{SOFT HYPHEN}\N{VARIATION SELECTOR-16}"
"""Signs without width, inside words or behind a picture."""


class _Separated(dict[int, str]):
    """A table for `str.translate`: a blank for everything but letters, marks, digits and the apostrophe."""

    def __missing__(self, code: int) -> str:
        self[code] = chr(code) if category(chr(code))[0] in "LMN" else " "
        return self[code]


_SEPARATED = _Separated(
    {ord("'"): "'", ord("\N{RIGHT SINGLE QUOTATION MARK}"): "'"} | dict.fromkeys(map(ord, _UNSEEN), "")
)


def words(caption: str) -> list[str]:
    """Split a caption into lower-case words and numbers, without punctuation.

    A word is a run of letters, marks and digits (Unicode's categories L, M and N; `\\w` ends at marks of Hindi, Thai
    and Arabic) in the composed form, NFC, and what an apostrophe joins to it. A run of Chinese is one word.

    >>> words("A dog's ball, 2 cats."), words("Ein Bär läuft – à l’ombre")
    (['a', "dog's", 'ball', '2', 'cats'], ['ein', 'bär', 'läuft', 'à', "l'ombre"])
    """
    lower = caption.lower()
    if lower.isascii():
        return _ASCII.findall(lower)
    return _SPACED.findall(normalize("NFC", lower).translate(_SEPARATED))


def nltk_words(caption: str) -> list[str]:
    """Split a caption into lower-case words and punctuation, as the peers' `nltk.word_tokenize` does for one sentence.

    >>> nltk_words("A dog's ball, 2 cats.")
    ['a', 'dog', "'s", 'ball', ',', '2', 'cats', '.']
    """
    optional_dependencies.require("dataset.words = nltk", "nltk")
    from nltk.tokenize import NLTKWordTokenizer

    return NLTKWordTokenizer().tokenize(caption.lower())


MOST_UNKNOWN = 0.5
"""Share of the validation words that may be unknown."""
READ_PIECES = (
    "where a script has no blanks between words, as in Chinese or Thai, a caption is one long word: read pieces of "
    'words by a pretrained text encoder, e.g. model.text.encoder = "transformer" and model.text.weights = '
    '"google-bert/bert-base-multilingual-cased"'
)
"""Advice for captions that are one word."""
SPLITTERS: dict[str, Splitter] = {"plain": words, "nltk": nltk_words}
"""Splitters of captions into words, by `dataset.words`."""


def frequent(captions: Iterable[str], min_count: int, split: Splitter = words) -> list[str]:
    """List the words that captions use at least `min_count` times, most frequent first, ties in alphabetical order."""
    counts = Counter(chain.from_iterable(map(split, captions)))
    return sorted(
        (word for word, count in counts.items() if count >= min_count), key=lambda word: (-counts[word], word)
    )


def unknown_share(captions: Sequence[str], known: Container[str], split: Splitter = words) -> float:
    """Return the share of the captions' words, from 0 to 1, that is unknown; an empty caption is one unknown word.

    >>> unknown_share(["a dog", "!", "a cat runs"], {"a", "dog"})
    0.5
    """
    read = [word for caption in captions for word in split(caption) or [""]]
    return sum(word not in known for word in read) / max(1, len(read))


def spelled_shares(shares: Mapping[str, float]) -> str:
    """Describe the shares of unknown words of some splits.

    >>> spelled_shares({"val": 0.0123, "test": 0.5})
    'unknown words: 1.2 % of val, 50.0 % of test'
    """
    return f"unknown words: {', '.join(f'{100 * share:.1f} % of {split}' for split, share in shares.items())}"
