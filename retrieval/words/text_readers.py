"""What turns captions into indices: a vocabulary, our own or a peer's, or the tokenizer of a pretrained network."""

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
"""A longer caption is cut: X-VLM's max_words, and MMT's max_text_words."""

_WITHOUT_MARKS = str.maketrans("-/", "  ", ",.'!?\"()*#:;~")


def xvlm(caption: str) -> str:
    """Lower case, no punctuation, hyphens and slashes as blanks, `<person>` a word; or UserError. X-VLM, `pre_caption`.

    >>> xvlm("A man-made pond; <person>'s dog (black/white) swims.")
    'a man made pond persons dog black white swims'
    """
    plain = caption.lower().translate(_WITHOUT_MARKS).replace("<person>", "person")
    words = plain.split()[:MOST_WORDS]
    if not words:
        raise UserError(
            f"caption {caption!r} has no word once its punctuation is removed, as X-VLM prepares captions. Take it out "
            "of the data, or set model.text.preparation = none."
        )
    return " ".join(words)


def mmt(caption: str) -> str:
    """Lower case, with a full stop where the caption ends without a mark. MMT, `tokenize_caption`.

    Its code makes the first letter a capital, and its tokenizer makes all letters small.

    >>> mmt("A man plays the guitar")
    'a man plays the guitar.'
    """
    cut = " ".join(caption.lower().split()[:MOST_WORDS])
    return cut if cut.endswith((".", "?", "!")) else f"{cut}."


PREPARATIONS: dict[str, Callable[[str], str]] = {"none": str, "x-vlm": xvlm, "mmt": mmt}
"""By `model.text.preparation`."""


SPECIAL = ("<pad>", "<unk>")
"""The words of index 0 and 1."""
BOUNDARIES = ("<start>", "<end>")
"""The words of index 2 and 3, if captions are read with their boundaries."""
MASK = "<mask>"
"""The last word, where training leaves words out."""

MARKS = {*SPECIAL, *BOUNDARIES}


class Vocabulary:
    """The words that occur in captions at least `min_count` times, most frequent first, ties in alphabetical order.

    Args:
        boundaries: read every caption between `<start>` and `<end>`.
        masked: know a word for words that are masked.
        known: words of a peer's vocabulary in the order of their indices, in place of the captions'.
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
        """Encode captions as word indices, cut to `max_words`; a caption without any word becomes one unknown word.

        Training leaves out a share of words, and of boundaries, as VSE-infinity's code does.
        """
        ids, lengths = padded([self._row(caption, max_words) for caption in captions])
        if not drop:
            return Tokens(ids, lengths)
        places = np.where(ids.numpy() != 0, np.arange(ids.shape[1]), -1)
        last = max(len(self) - 1, self.first + 1)  # the mask is the last word
        return Tokens(ids, lengths, WordDropping(drop, places, self.index[MASK], self.first, last))

    def unknown_share(self, captions: Sequence[str]) -> float:
        """Return the share of the captions' words, from 0 to 1, that it does not know."""
        return unknown_share(captions, self.index, self.split)

    def spelled(self, ids: Sequence[int]) -> list[str]:
        return [self.words[index] for index in ids]

    @property
    def content(self) -> list[str]:
        """Its content for a trial's folder: the words in order."""
        return self.words

    def _row(self, caption: str, max_words: int) -> list[int]:
        row = [self.index.get(word, self.unknown) for word in self.split(caption)][:max_words] or [self.unknown]
        return [self.index[BOUNDARIES[0]], *row, self.index[BOUNDARIES[1]]] if self.boundaries else row


class WordPieces:
    """A tokenizer of `transformers`, with the methods of `Vocabulary`; padding is 0, whatever the tokenizer's is.

    Args:
        length: tokens at which captions are cut at the latest, as many as their network reads; None: any number.
    """

    def __init__(
        self, tokenizer: Any, name: str, prepare: Callable[[str], str] = str, length: int | None = None
    ) -> None:
        self.tokenizer, self.name, self.prepare, self.length = tokenizer, name, prepare, length

    def __len__(self) -> int:
        return len(self.tokenizer)

    def encode(self, captions: Sequence[str], *, max_words: int, drop: float = 0.0) -> Tokens:
        """Encode captions as pieces between special tokens, which always stay; a word's pieces share its fate."""
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
        """Return the share of the captions' pieces, from 0 to 1, that are the tokenizer's unknown token."""
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
    """Return 16 hexadecimal digits over a reader's `content`."""
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
    """Build the reader of an encoder; its vocabulary is from the training captions, or a peer's file.

    `known` words of a trained model, in the order of their indices, replace any vocabulary; `split` is of `SPLITTERS`.
    UserError: the weights' tokenizer cannot be found, the file is no vocabulary, or a caption cannot be prepared.
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
