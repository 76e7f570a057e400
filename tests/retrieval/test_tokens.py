"""Captions as tokens: words left out in training as VSE-infinity does, never in evaluation."""

from pathlib import Path

import numpy as np
import pytest
import torch

from goalgrid.grid.settings.text_encoders import TransformerSettings
from goalgrid.retrieval.words import text_readers
from goalgrid.retrieval.words.tokens import Tokens, WordDropping
from tests.networks import save

WORDS = [f"word{i}" for i in range(12)]
ALL = torch.arange(2000)


def tokens(share: float = 0.2) -> Tokens:
    """2,000 captions of twelve words."""
    vocabulary = text_readers.Vocabulary(WORDS, min_count=1, boundaries=True, masked=True)
    return vocabulary.encode([" ".join(WORDS)] * len(ALL), max_words=20, drop=share)


def test_without_a_draw_captions_are_whole() -> None:
    ids, lengths = tokens().gather(ALL)
    assert lengths.eq(14).all()
    assert ids.eq(ids[0]).all()


def test_a_draw_decides_and_nothing_else() -> None:
    first, again, other = (tokens().gather(ALL, draw)[0] for draw in (1, 1, 2))
    assert first.equal(again)
    assert not torch.equal(first, other)


def test_half_of_the_picked_words_are_masked_a_tenth_replaced_the_others_left_out() -> None:
    whole = tokens()
    ids, lengths = whole.gather(ALL, 7)
    total = 14 * len(ALL)
    assert whole.drop is not None
    masked = int((ids == whole.drop.mask).sum()) / total
    left_out = 1 - int(lengths.sum()) / total
    unknown = [set(row.tolist()) - {0, whole.drop.mask} for row in ids]
    assert abs(masked - 0.1) < 0.01
    assert abs(left_out - 0.08) < 0.01
    assert all(words <= set(range(2, 16)) for words in unknown), "replacements are words, never padding or unknown"


def test_a_caption_never_vanishes() -> None:
    ids, lengths = tokens(share=0.99).gather(ALL, 3)
    assert lengths.min() >= 1
    assert ids[:, 0].ne(0).all()
    assert ids.shape[1] == int(lengths.max())


def test_padding_stays_behind_the_words() -> None:
    ids = torch.tensor([[3, 4, 5, 0], [6, 0, 0, 0]])
    places = np.where(ids.numpy() != 0, np.arange(4), -1)
    thinned = Tokens(ids, torch.tensor([3, 1]), WordDropping(0.5, places, mask=2, first=3, last=7))
    for draw in range(50):
        out, lengths = thinned.gather(torch.arange(2), draw)
        for row, length in zip(out, lengths.tolist(), strict=True):
            assert row[:length].ne(0).all()
            assert row[length:].eq(0).all()


def test_pieces_of_a_word_share_its_fate_and_special_tokens_have_none(tmp_path: Path) -> None:
    settings = TransformerSettings(encoder="transformer", weights="bert", word_drop=0.5)
    reader = text_readers.build(settings, [], min_count=1, places={"bert": save(tmp_path / "bert", "bert")})
    encoded = reader.encode(["a dog runs over the grass"] * 500, max_words=20, drop=0.5)
    names = reader.tokenizer.convert_ids_to_tokens  # type: ignore[attr-defined]
    ids, lengths = encoded.gather(torch.arange(500), 3)
    both = 0
    for row, length in zip(ids, lengths.tolist(), strict=True):
        words = names(row[:length].tolist())
        assert words[0] == "[CLS]"
        assert words[-1] == "[SEP]"
        both += "run" in words and words[words.index("run") + 1 : words.index("run") + 2] == ["##s"]
    assert both > 150


@pytest.mark.parametrize("longest", [4, 7])
def test_long_captions_are_cut_and_keep_their_end(tmp_path: Path, longest: int) -> None:
    settings = TransformerSettings(encoder="transformer", weights="bert")
    reader = text_readers.build(settings, [], min_count=1, places={"bert": save(tmp_path / "bert", "bert")})
    ids, lengths = reader.encode(["a dog runs over the green grass"], max_words=longest).gather(torch.tensor([0]))
    assert int(lengths[0]) == longest
    assert int(ids[0, -1]) == reader.tokenizer.sep_token_id  # type: ignore[attr-defined]
