"""The vocabulary: from training captions, in an order that any machine repeats."""

import json
import os
import pickle
import re
import sys
import types
from pathlib import Path
from unicodedata import category, normalize

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter

from goalgrid.grid.errors import UserError
from goalgrid.grid.settings.text_encoders import BiGruSettings, TextSettings
from goalgrid.retrieval.words import text_readers, vocabulary_files
from goalgrid.retrieval.words.splitting import words
from goalgrid.retrieval.words.text_readers import Vocabulary
from tests.cases import every
from tests.networks import save

CAPTIONS = ["a dog runs", "a dog sits", "the dog", "a cat"]


def test_rare_words_are_unknown() -> None:
    vocabulary = Vocabulary(CAPTIONS, min_count=2)
    assert vocabulary.words == ["<pad>", "<unk>", "a", "dog"]
    ids, lengths = vocabulary.encode(["a dog flies"], max_words=9).gather(ids_of(1))
    assert ids.tolist() == [[2, 3, 1]]
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


ASCII = st.text(st.characters(max_codepoint=127))


@given(ASCII)
def test_words_of_ascii_are_those_of_the_expression_of_old(caption: str) -> None:
    """Trials on English captions keep their numbers."""
    assert words(caption) == re.findall(r"[a-z0-9]+(?:'[a-z]+)?", caption.lower())


SCRIPTS = {
    "German": ("Ein BÄR läuft über die Straße.", ["ein", "bär", "läuft", "über", "die", "straße"]),
    "French, typographic": ("À l’ombre d'un chêne", ["à", "l'ombre", "d'un", "chêne"]),
    "Czech": ("Žlutý kůň, 2 psi", ["žlutý", "kůň", "2", "psi"]),
    "Hindi": ("एक कुत्ता दौड़ता है।", ["एक", "कुत्ता", "दौड़ता", "है"]),
    "Thai": ("หมา วิ่ง", ["หมา", "วิ่ง"]),
    "Arabic with vowels": ("الكَلْبُ يَرْكُضُ", ["الكَلْبُ", "يَرْكُضُ"]),
    "Persian, joined by a sign without width": ("می\u200cخواهم", ["میخواهم"]),
    "Chinese": ("一只猫在草地。", ["一只猫在草地"]),
    "decomposed": ("cafe\u0301 noir", ["caf\u00e9", "noir"]),
    "a picture": ("I \u2764\ufe0f dogs – so much…", ["i", "dogs", "so", "much"]),
}


@every(("caption", "expected"), SCRIPTS.values())
def test_words_are_runs_of_letters_marks_and_digits_in_any_script(caption: str, expected: list[str]) -> None:
    assert words(caption) == [normalize("NFC", word) for word in expected]
    assert words(normalize("NFD", caption)) == words(caption)


@given(st.text(st.characters(exclude_characters="'\u2019\u200c\u200d\u00ad\ufe0f")))
def test_words_without_apostrophes_equal_the_literal_loop(caption: str) -> None:
    runs, run = list[str](), ""
    for letter in normalize("NFC", caption.lower()) + " ":
        if category(letter)[0] in "LMN":
            run += letter
        elif run:
            runs, run = [*runs, run], ""
    assert words(caption) == runs


def test_the_share_of_unknown_words_counts_each_use(tmp_path: Path) -> None:
    vocabulary = Vocabulary(CAPTIONS, min_count=1)
    assert vocabulary.unknown_share(["a dog", "a dog flies high", "?!"]) == pytest.approx(3 / 7)
    settings = TEXT.validate_python({"encoder": "transformer", "weights": "bert"})
    pieces = text_readers.build(settings, [], places={"bert": save(tmp_path / "bert", "bert")})
    assert pieces.unknown_share(["a dogs", "猫 a"]) == pytest.approx(1 / 5)  # a, dog, ##s, [UNK], a


def literal_xvlm(caption: str) -> str:
    """X-VLM's `pre_caption`, letter by letter, with its max_words of 30."""
    found = ""
    for letter in caption.lower():
        if letter not in ",.'!?\"()*#:;~":
            found += " " if letter in "-/" else letter
    found = found.replace("<person>", "person")
    while "  " in found:
        found = found.replace("  ", " ")
    return " ".join(found.strip().split(" ")[:30])


def literal_mmt(caption: str) -> str:
    """MMT's `tokenize_caption` of a caption's first 30 words, and the small letters that its tokenizer makes."""
    text = " ".join(caption.split(" ")[:30]).strip()
    if text[-1] not in [".", "?", "!"]:
        text += "."
    return text.capitalize().lower()


TEXT: TypeAdapter[TextSettings] = TypeAdapter(TextSettings)
LITERAL = {"none": lambda caption: caption, "x-vlm": literal_xvlm, "mmt": literal_mmt}


@pytest.mark.parametrize("name", text_readers.PREPARATIONS)
def test_captions_are_prepared_as_the_models_code_does(name: str, few_pictures: Path, tmp_path: Path) -> None:
    captions = (few_pictures / "precomp" / "train_caps.txt").read_text().splitlines()
    captions += ['  T-shirt, "x/y" ~ (<person>)!', "One's  dog: #1; *2?", " ".join(f"w{i}," for i in range(40))]
    prepare = text_readers.PREPARATIONS[name]
    expected = [LITERAL[name](" ".join(caption.split()) if name == "mmt" else caption) for caption in captions]
    assert [prepare(caption) for caption in captions] == expected
    places = {"bert": save(tmp_path / "bert", "bert")}
    for settings in ({"encoder": "bigru"}, {"encoder": "transformer", "weights": "bert"}):
        own, plain = (
            text_readers.build(TEXT.validate_python({**settings, "preparation": how}), texts, places=places)
            for how, texts in ((name, captions), ("none", expected))
        )
        assert own.encode(captions, max_words=50).ids.equal(plain.encode(expected, max_words=50).ids)


def test_a_caption_without_a_word_is_named() -> None:
    with pytest.raises(UserError, match=r"caption '\.\.\. !' has no words .* set model\.text\.preparation = none"):
        text_readers.xvlm("... !")


def test_it_is_saved_in_order() -> None:
    assert Vocabulary(CAPTIONS, min_count=1).content[:4] == ["<pad>", "<unk>", "a", "dog"]


PEERS = {"<pad>": 0, "<start>": 1, "<end>": 2, "<unk>": 3, "a": 4, "dog": 5, ".": 6, "'s": 7}
"""Indices as VSE++ gives them."""


def pickled(index: dict[str, int], monkeypatch: pytest.MonkeyPatch, protocol: int) -> bytes:
    """A vocabulary as VSE++'s `vocab.py` saves it: an object of a class that is not here."""
    module = types.ModuleType("vocab")
    kind = type("Vocabulary", (), {"__module__": "vocab"})
    module.Vocabulary = kind  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "vocab", module)
    theirs = kind()
    theirs.__dict__ |= {
        "word2idx": index,
        "idx2word": {place: word for word, place in index.items()},
        "idx": len(index),
    }
    return pickle.dumps(theirs, protocol)


@pytest.mark.parametrize("protocol", [0, 1, 2, 4])
def test_vse_plus_plus_vocabularies_keep_their_indices(
    protocol: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "v.pkl"
    path.write_bytes(pickled(PEERS, monkeypatch, protocol))
    monkeypatch.delitem(sys.modules, "vocab")
    assert vocabulary_files.read(path) == list(PEERS)


def test_a_peers_vocabulary_reads_captions_as_the_peer_does(tmp_path: Path) -> None:
    path = tmp_path / "v.json"
    path.write_text(json.dumps({"word2idx": PEERS, "idx2word": {}, "idx": 8}))
    settings = BiGruSettings(encoder="bigru", boundaries=True, word_drop=0.2)
    reader = text_readers.build(settings, CAPTIONS, places={}, split="nltk", vocabulary=path)
    assert isinstance(reader, Vocabulary)
    assert reader.words == [*PEERS, "<mask>"]
    assert (reader.unknown, reader.first) == (3, 4)
    ids, _ = reader.encode(["A dog's bone."], max_words=9).gather(ids_of(1))
    assert ids.tolist() == [[1, 4, 5, 7, 3, 6, 2]]


class Evil:
    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.system, ("touch evil",)


@pytest.mark.parametrize("content", [pickle.dumps(Evil()), pickle.dumps({"word2idx": Evil()}), b"", b"garbage"])
def test_a_pickle_that_is_no_vocabulary_is_refused_and_not_run(
    content: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("v.pkl").write_bytes(content)
    with pytest.raises(UserError, match=r"the vocabulary .*v\.pkl cannot be read"):
        vocabulary_files.read(tmp_path / "v.pkl")
    assert not Path("evil").exists()


@pytest.mark.parametrize(
    ("index", "problem"),
    [
        ({"<pad>": 0, "a": 1}, "lacks the word <unk>"),
        ({**PEERS, "cat": 9}, "indices are not 0 to 8"),
        ({**PEERS, "<pad>": 4, "a": 0}, "<pad> has index 4, not 0"),
        (["a"], "no word2idx"),
    ],
)
def test_a_vocabulary_with_holes_is_refused(index: object, problem: str, tmp_path: Path) -> None:
    (tmp_path / "v.json").write_text(json.dumps({"word2idx": index}))
    with pytest.raises(UserError, match=problem):
        vocabulary_files.read(tmp_path / "v.json")
    with pytest.raises(
        UserError, match=r"no vocabulary at .*none\.json\. A vocabulary file maps each word to its index"
    ):
        vocabulary_files.read(tmp_path / "none.json")
