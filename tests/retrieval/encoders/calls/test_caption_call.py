"""Captions as their network's authors have them read: cut, prompted, lowered, and thinned in training."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from goalgrid.grid.errors import UserError
from goalgrid.grid.settings.text_encoders import TransformerSettings
from goalgrid.retrieval.encoders.calls import caption_call
from goalgrid.retrieval.encoders.calls.called import as_called
from goalgrid.retrieval.words import text_readers
from tests.retrieval.test_towers import ROBERTA, TEXT, Text, network, saved, tokenizer

pytestmark = pytest.mark.gate
LONG = "two men play chess " * 40


def settings(**changes: Any) -> TransformerSettings:
    return TransformerSettings.model_validate({"weights": "a", "call": "published", **changes})


def pieces(folder: Path, caption: str, *, most: int = 60, **changes: Any) -> list[int]:
    """The tokens of a caption, on a data set that cuts captions at `most` of them."""
    text, places = settings(**changes), {"a": folder}
    reader = text_readers.build(text, [], places=places)
    called = as_called(text, places)
    tokens = reader.encode([called.prompted(caption)], max_words=called.longest(most))
    ids: list[int] = tokens.ids[0, : tokens.lengths[0]].tolist()
    return ids


@pytest.mark.parametrize(("name", "length"), [("CLIP", 77), ("SigLIP so400m at 224", 16), ("RoBERTa", 510)])
def test_published_captions_are_cut_at_the_networks_own_places_with_the_end_token(
    name: str, length: int, tmp_path: Path
) -> None:
    saved(tmp_path, name)
    words = tokenizer(tmp_path, TEXT[name][1])
    long = LONG * 5
    expected = words(long, truncation=True, max_length=length)["input_ids"]
    assert (len(expected), expected[-1]) == (length, words.eos_token_id)
    assert pieces(tmp_path, long) == expected
    assert pieces(tmp_path, long, max_words=9) == words(long, truncation=True, max_length=9)["input_ids"]
    assert pieces(tmp_path, long, call="plain") == words(long, truncation=True, max_length=min(60, length))["input_ids"]
    assert caption_call.places_of(settings(), {"a": tmp_path}) == length, "of the files alone"
    with pytest.raises(UserError, match=f"max_words = {length + 1}: the network reads {length} tokens"):
        pieces(tmp_path, long, max_words=length + 1)


def test_prompts_are_read_as_written_and_by_default_those_of_the_folder(tmp_path: Path) -> None:
    saved(tmp_path, "BERT")
    words = tokenizer(tmp_path, TEXT["BERT"][1])
    assert pieces(tmp_path, "dog") == words("dog")["input_ids"]
    assert pieces(tmp_path, "dog", prompt="chess .") == words("chess .dog")["input_ids"]
    assert pieces(tmp_path, "dog", prompt="a photo", call="plain") == words("a photo dog")["input_ids"]
    prompts = {"prompts": {"query": "a red ", "document": "two "}, "default_prompt_name": "query"}
    (tmp_path / "config_sentence_transformers.json").write_text(json.dumps(prompts))
    assert pieces(tmp_path, "dog") == words("a red dog")["input_ids"]
    assert pieces(tmp_path, "dog", prompt="") == words("dog")["input_ids"]
    (tmp_path / "sentence_bert_config.json").write_text(json.dumps({"max_seq_length": 7, "do_lower_case": True}))
    assert pieces(tmp_path, "Two MEN play chess on the left", prompt="") == [
        2, *words("two men play chess on", add_special_tokens=False)["input_ids"], 3
    ]  # fmt: skip


def test_words_left_out_in_training_are_never_special_tokens_of_index_0(tmp_path: Path) -> None:
    """<s> of RoBERTa is 0, as padding is in a vocabulary of our own."""
    tokenizer(tmp_path, Text(*ROBERTA))
    network(tmp_path, "roberta", {**TEXT["RoBERTa"][1].sizes, "vocab_size": 99})
    text = settings(word_drop=0.5)
    captions = ["two men play chess on the left of a small dog", "cat"] * 20
    tokens = text_readers.build(text, captions, places={"a": tmp_path}).encode(captions, max_words=60, drop=0.5)
    thinned, lengths = tokens.gather(torch.arange(len(captions)), 3)
    assert lengths.sum() < tokens.lengths.sum()
    for row, length in zip(thinned.tolist(), lengths.tolist(), strict=True):
        assert (row[0], row[length - 1]) == (0, 2), "between <s> and </s>"


def test_a_call_of_random_weights_is_refused() -> None:
    with pytest.raises(ValueError, match="read from the folder of the weights, and random weights have none"):
        settings(weights="random", architecture={"model_type": "bert"})
