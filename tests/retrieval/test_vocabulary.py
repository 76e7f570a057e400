"""The vocabulary: from training captions, in an order that any machine repeats."""

import json
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from retrieval.words.text_readers import UNKNOWN, Vocabulary, words

CAPTIONS = ["a dog runs", "a dog sits", "the dog", "a cat"]


def test_rare_words_are_unknown() -> None:
    vocabulary = Vocabulary(CAPTIONS, min_count=2)
    assert vocabulary.words == ["<pad>", "<unk>", "a", "dog"]
    ids, lengths = vocabulary.encode(["a dog flies"], max_words=9).gather(ids_of(1))
    assert ids.tolist() == [[2, 3, UNKNOWN]]
    assert lengths.tolist() == [3]


def ids_of(count: int):  # type: ignore[no-untyped-def]
    import torch

    return torch.arange(count)


@given(st.permutations(CAPTIONS))
def test_the_order_of_captions_does_not_matter(captions: list[str]) -> None:
    assert Vocabulary(captions, min_count=1).words == Vocabulary(CAPTIONS, min_count=1).words


@given(st.lists(st.text(), min_size=1), st.integers(1, 5))
def test_any_text_can_be_encoded(captions: list[str], longest: int) -> None:
    tokens = Vocabulary(captions, min_count=1).encode(captions, max_words=longest)
    ids, lengths = tokens.gather(ids_of(len(captions)))
    assert 1 <= int(lengths.min()) <= int(lengths.max()) <= longest
    assert ids.shape == (len(captions), int(lengths.max()))


def test_words_of_a_caption_in_the_wild() -> None:
    assert words("Two men , one in a man's T-shirt .") == ["two", "men", "one", "in", "a", "man's", "t", "shirt"]


def test_it_is_saved_in_order(tmp_path: Path) -> None:
    Vocabulary(CAPTIONS, min_count=1).save(tmp_path / "v.json")
    assert json.loads((tmp_path / "v.json").read_text())[:4] == ["<pad>", "<unk>", "a", "dog"]
