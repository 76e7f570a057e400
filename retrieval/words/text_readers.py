"""Convert captions to token indices, with a vocabulary (built here or published) or a pretrained tokenizer."""

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from goalgrid.grid.errors import UserError
from goalgrid.grid.identity import digest
from goalgrid.grid.settings.text_encoders import TextEncoderSettings
from goalgrid.retrieval.encoders import pretrained
from goalgrid.retrieval.encoders.calls import caption_call
from goalgrid.retrieval.words import vocabulary_files
from goalgrid.retrieval.words.splitting import SPLITTERS, Splitter, frequent, unknown_share, words
from goalgrid.retrieval.words.tokens import Tokens, WordDropping, padded

MOST_WORDS = 30
"""Maximum number of words of a caption, longer ones are truncated: X-VLM's max_words and MMT's max_text_words."""

_WITHOUT_MARKS = str.maketrans("-/", "  ", ",.'!?\"()*#:;~")


def xvlm(caption: str) -> str:
    """Lower-case a caption, remove punctuation, replace hyphens and slashes by spaces. X-VLM, `pre_caption`.

    `<person>` becomes a word. Raises UserError if no word is left.

    >>> xvlm("A man-made pond; <person>'s dog (black/white) swims.")
    'a man made pond persons dog black white swims'
    """
    plain = caption.lower().translate(_WITHOUT_MARKS).replace("<person>", "person")
    words = plain.split()[:MOST_WORDS]
    if not words:
        raise UserError(
            f"caption {caption!r} has no words after removing punctuation, as X-VLM's preparation does. Remove it from "
            "the data, or set model.text.preparation = none."
        )
    return " ".join(words)


def mmt(caption: str) -> str:
    """Lower-case a caption, and append a full stop if it ends without punctuation. MMT, `tokenize_caption`.

    MMT's code capitalises the first letter, but its tokenizer then lower-cases all.

    >>> mmt("A man plays the guitar")
    'a man plays the guitar.'
    """
    cut = " ".join(caption.lower().split()[:MOST_WORDS])
    return cut if cut.endswith((".", "?", "!")) else f"{cut}."


PREPARATIONS: dict[str, Callable[[str], str]] = {"none": str, "x-vlm": xvlm, "mmt": mmt}
"""Functions that prepare captions, by `model.text.preparation`."""


SPECIAL = ("<pad>", "<unk>")
"""Tokens with indices 0 and 1."""
BOUNDARIES = ("<start>", "<end>")
"""Tokens with indices 2 and 3, if captions are read with boundaries."""
MASK = "<mask>"
"""The last token, if training masks words."""

MARKS = {*SPECIAL, *BOUNDARIES}


class Vocabulary:
    """The words that occur at least `min_count` times in the captions, most frequent first, then alphabetically.

    Args:
        boundaries: enclose every caption in `<start>` and `<end>`.
        masked: add a mask token.
        known: words of a given vocabulary, in index order, used instead of the captions' words.
    """

    def __init__(
        self,
        captions: Iterable[str],
        *,
        min_count: int,
        boundaries: bool = False,
        masked: bool = False,
        known: Sequence[str] = (),
        split: Splitter = words,
    ) -> None:
        self.boundaries, self.split = BOUNDARIES if boundaries else (), split
        self.words = list(known) or [*SPECIAL, *self.boundaries, *frequent(captions, min_count, split)]
        self.words += [MASK] if masked and MASK not in self.words else []
        self.index = {word: index for index, word in enumerate(self.words)}
        self.unknown = self.index[SPECIAL[1]]
        self.first = 1 + max(index for word, index in self.index.items() if word in MARKS)

    def __len__(self) -> int:
        return len(self.words)

    def encode(self, captions: Sequence[str], *, max_words: int, drop: float = 0.0) -> Tokens:
        """Encode captions as word indices, truncated to `max_words`; an empty caption becomes one unknown word.

        In training, a share `drop` of the words, including boundaries, is masked, replaced or dropped, as in
        VSE-infinity's code.
        """
        ids, lengths = padded([self._row(caption, max_words) for caption in captions])
        if not drop:
            return Tokens(ids, lengths)
        places = np.where(ids.numpy() != 0, np.arange(ids.shape[1]), -1)
        last = max(len(self) - 1, self.first + 1)  # the mask is the last word
        return Tokens(ids, lengths, WordDropping(drop, places, self.index[MASK], self.first, last))

    def unknown_share(self, captions: Sequence[str]) -> float:
        """Return the share of the captions' words that are not in the vocabulary, from 0 to 1."""
        return unknown_share(captions, self.index, self.split)

    def spelled(self, ids: Sequence[int]) -> list[str]:
        return [self.words[index] for index in ids]

    @property
    def content(self) -> list[str]:
        """Words in index order, as stored in a trial's folder."""
        return self.words

    def _row(self, caption: str, max_words: int) -> list[int]:
        row = [self.index.get(word, self.unknown) for word in self.split(caption)][:max_words] or [self.unknown]
        return [self.index[BOUNDARIES[0]], *row, self.index[BOUNDARIES[1]]] if self.boundaries else row


class WordPieces:
    """A tokenizer of `transformers`, with the interface of `Vocabulary`; padding is 0, whatever the tokenizer uses.

    Args:
        length: maximum number of tokens that the network reads; None for no limit.
    """

    def __init__(
        self, tokenizer: Any, name: str, prepare: Callable[[str], str] = str, length: int | None = None
    ) -> None:
        self.tokenizer, self.name, self.prepare, self.length = tokenizer, name, prepare, length

    def __len__(self) -> int:
        return len(self.tokenizer)

    def encode(self, captions: Sequence[str], *, max_words: int, drop: float = 0.0) -> Tokens:
        """Encode captions as subwords between special tokens.

        If `drop` is set, all subwords of a word are masked, replaced or dropped together; special tokens are kept.
        """
        length = min(max_words, self.length or max_words)
        encoded = self.tokenizer(list(map(self.prepare, captions)), truncation=True, max_length=length)
        ids, lengths = padded(encoded["input_ids"])
        if not drop:
            return Tokens(ids, lengths)
        of_word = [[-1 if word is None else word for word in encoded.word_ids(row)] for row in range(len(captions))]
        mask = self.tokenizer.mask_token_id
        mask = self.tokenizer.unk_token_id if mask is None else mask
        return Tokens(ids, lengths, WordDropping(drop, padded(of_word, fill=-1)[0].numpy(), mask, 1, len(self)))

    def unknown_share(self, captions: Sequence[str]) -> float:
        """Return the share of the captions' subwords that are the tokenizer's unknown token, from 0 to 1."""
        encoded = self.tokenizer(list(map(self.prepare, captions)), add_special_tokens=False)["input_ids"]
        pieces = [piece for row in encoded for piece in row]
        return pieces.count(self.tokenizer.unk_token_id) / max(1, len(pieces))

    def spelled(self, ids: Sequence[int]) -> list[str]:
        return list(self.tokenizer.convert_ids_to_tokens(list(ids)))

    @property
    def content(self) -> dict[str, Any]:
        return {"tokenizer": self.name, "size": len(self)}


CaptionReader = Vocabulary | WordPieces


def fingerprint(content: Any) -> str:
    """Return the hash of a reader's `content`, 16 hexadecimal digits."""
    return digest(content)[:16]


def build(
    settings: TextEncoderSettings,
    captions: Sequence[str],
    *,
    places: pretrained.Places,
    min_count: int = 1,
    split: str = "plain",
    vocabulary: Path | None = None,
    known: Sequence[str] = (),
) -> CaptionReader:
    """Build the caption reader of a text encoder: its tokenizer, or a vocabulary.

    The vocabulary is built from the training captions or read from the file `vocabulary`; the words of a trained model,
    `known` (in index order), take precedence. `split`: a key of `SPLITTERS`. Raises UserError if the weights' tokenizer
    cannot be found, the file is not a vocabulary, or a caption cannot be prepared.
    """
    network, prepare = settings.tokenizer, PREPARATIONS[settings.preparation]
    if network is not None:
        tokenizer = pretrained.tokenizer(network, places)
        lowers = caption_call.lowers(network, places, tokenizer)
        prepared = (lambda caption: prepare(caption).lower()) if lowers else prepare
        length = caption_call.length_of(network, places, tokenizer)
        caption_call.check_places(settings, length)
        return WordPieces(tokenizer, network.weights, prepared, length)
    return Vocabulary(
        captions,
        min_count=min_count,
        boundaries=getattr(settings, "boundaries", False),
        masked=settings.word_drop > 0,
        known=known or (vocabulary_files.read(vocabulary) if vocabulary else ()),
        split=lambda caption: SPLITTERS[split](prepare(caption)),
    )
