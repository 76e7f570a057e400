"""Captions as a pretrained network reads them: the pieces of its own tokenizer, with its special tokens."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from grid.store.files import write_json
from retrieval.words.tokens import Tokens, WordDropping, padded


class WordPieces:
    """A tokenizer of `transformers` behind the interface of a vocabulary; padding is 0, whatever the tokenizer's is.

    Args:
        name: of the weights that it belongs to.
    """

    def __init__(self, tokenizer: Any, name: str) -> None:
        self.tokenizer, self.name = tokenizer, name
        self.pad = tokenizer.pad_token_id or 0

    def __len__(self) -> int:
        return len(self.tokenizer)

    def encode(self, captions: Sequence[str], *, max_words: int, drop: float = 0.0) -> Tokens:
        """Every caption as pieces between its special tokens, which are never left out; the pieces of a word share
        its fate."""
        encoded = self.tokenizer(list(captions), truncation=True, max_length=max_words)
        ids, lengths = padded(encoded["input_ids"])
        if not drop:
            return Tokens(ids, lengths)
        of_word = [[-1 if word is None else word for word in encoded.word_ids(row)] for row in range(len(captions))]
        words, _ = padded(of_word, fill=-1)
        mask = self.tokenizer.mask_token_id
        rule = WordDropping(drop, self.tokenizer.unk_token_id if mask is None else mask, 1, len(self))
        return Tokens(ids, lengths, np.ascontiguousarray(words), rule)

    def save(self, path: Path) -> None:
        """Write whose tokenizer it is: its own files say the rest."""
        write_json(path, {"tokenizer": self.name, "size": len(self)})
