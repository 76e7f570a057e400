"""Sentence-transformers folders: the vector that follows from their modules, and the files that count for caches."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from goalgrid.grid.errors import UserError
from goalgrid.grid.settings.text_encoders import TransformerSettings
from goalgrid.retrieval.encoders import pretrained
from goalgrid.retrieval.encoders import text as encoders
from tests.retrieval.test_towers import (
    CAPTIONS,
    SIZES,
    UNSAID,
    VISION,
    assert_same,
    network,
    ours,
    saved,
    transformers,
)

sentencepiece = pytest.importorskip("sentencepiece")
pytestmark = pytest.mark.gate
ROOT = "sentence_transformers.models."
DENSE = {"bias": True, "activation_function": "torch.nn.modules.linear.Identity"}
FOLDERS: dict[str, tuple[str, str, list[dict[str, Any]], bool]] = {
    "all-MiniLM": ("BERT", "mean_tokens", [], True),
    "all-mpnet": ("MPNet", "mean_tokens", [], True),
    "multilingual E5": ("XLM-R", "mean_tokens", [], True),
    "BGE": ("BERT", "cls_token", [], True),
    "gte-modernbert": ("ModernBERT", "cls_token", [], False),
    "Qwen3-Embedding, whole": ("Qwen3-Embedding", "lasttoken", [], True),
    "EmbeddingGemma, whole": ("EmbeddingGemma", "mean_tokens", [{**DENSE, "bias": False, "out_features": 96},
                                                          {**DENSE, "bias": False, "out_features": 48}], True),
    "sentence-T5": ("T5", "mean_tokens", [{**DENSE, "bias": False, "out_features": 48}], True),
    "LaBSE": ("BERT", "cls_token", [{"bias": True, "out_features": 64,
                                     "activation_function": "torch.nn.modules.activation.Tanh"}], True),
}  # fmt: skip
"""By name: the network, the pooling, the dense layers, and whether vectors are brought to unit length."""


def write(folder: Path, name: str, *, binary: bool = False) -> list[tuple[torch.nn.Linear, str]]:
    """Write the folder of this name; return its dense layers with their activations."""
    of, pooling, dense, unit = FOLDERS[name]
    saved(folder, of)
    kinds = ["Transformer", "Pooling", *["Dense"] * len(dense), *["Normalize"] * unit]
    paths = ["", *(f"{place}_{kind}" for place, kind in enumerate(kinds[1:], 1))]
    modules = [{"idx": place, "path": path, "type": ROOT + kinds[place]} for place, path in enumerate(paths)]
    (folder / "modules.json").write_text(json.dumps(modules))
    (folder / "1_Pooling").mkdir()
    known = ("cls_token", "mean_tokens", "max_tokens", "mean_sqrt_len_tokens", "weightedmean_tokens", "lasttoken")
    modes = {f"pooling_mode_{mode}": mode == pooling for mode in known}
    (folder / "1_Pooling" / "config.json").write_text(json.dumps({"word_embedding_dimension": 64, **modes}))
    layers, width = [], 64
    for path, fields in zip(paths[2:], dense, strict=False):
        (folder / path).mkdir()
        layer = torch.nn.Linear(width, fields["out_features"], bias=fields["bias"])
        (folder / path / "config.json").write_text(json.dumps({"in_features": width, **fields}))
        weights = {f"linear.{key}": value.detach() for key, value in layer.state_dict().items()}
        if binary:
            torch.save(weights, folder / path / "pytorch_model.bin")
        else:
            from safetensors.torch import save_file

            save_file(weights, folder / path / "model.safetensors")
        layers.append((layer, fields["activation_function"]))
        width = fields["out_features"]
    return layers


def documented(folder: Path, name: str, layers: list[tuple[torch.nn.Linear, str]]) -> list[Tensor]:
    """Each caption's vector, alone, as sentence-transformers computes it."""
    of, pooling, _, unit = FOLDERS[name]
    words = transformers.AutoTokenizer.from_pretrained(folder)
    kind = transformers.AutoModelForTextEncoding if of == "T5" else transformers.AutoModel
    whole, vectors = kind.from_pretrained(folder).eval(), []
    for caption in CAPTIONS:
        with torch.inference_mode():
            states = whole(**words(caption, truncation=True, max_length=60, return_tensors="pt",
                                   return_token_type_ids=False)).last_hidden_state[0]  # fmt: skip
            vector = {"mean_tokens": states.mean(dim=0), "cls_token": states[0], "lasttoken": states[-1]}[pooling]
            for layer, activation in layers:
                vector = layer(vector)
                vector = torch.tanh(vector) if activation.endswith("Tanh") else vector
            vectors.append(vector / vector.norm() if unit else vector)
    return vectors


@pytest.mark.parametrize("name", FOLDERS)
def test_captions_have_the_vectors_of_their_modules(name: str, tmp_path: Path) -> None:
    torch.manual_seed(0)
    layers = write(tmp_path, name, binary=name == "LaBSE")
    expected = documented(tmp_path, name, layers)
    assert_same(ours(tmp_path, "projected", CAPTIONS), expected)
    settings = TransformerSettings(weights="a", output="projected", frozen=True, head="none")
    tower = encoders.text_network(settings, 99, {"a": tmp_path})
    assert encoders.width_of(tower, settings) == len(expected[0])


def change(folder: Path, name: str, **fields: Any) -> None:
    file = folder / name
    file.write_text(json.dumps({**json.loads(file.read_text()), **fields}))


def test_modules_that_are_not_known_are_refused(tmp_path: Path) -> None:
    write(tmp_path, "LaBSE")
    change(tmp_path, "2_Dense/config.json", activation_function="torch.nn.SELU")
    with pytest.raises(UserError, match=r"2_Dense cannot be read: .*its activation is torch\.nn\.SELU"):
        ours(tmp_path, "projected", CAPTIONS)
    change(tmp_path, "1_Pooling/config.json", pooling_mode_mean_tokens=True)
    with pytest.raises(UserError, match="it pools by pooling_mode_cls_token and pooling_mode_mean_tokens"):
        ours(tmp_path, "projected", CAPTIONS)
    (tmp_path / "modules.json").write_text(json.dumps([{"path": "", "type": ROOT + "CLIPModel"}]))
    with pytest.raises(UserError, match=r"cannot be taken from modules\.json: it lists CLIPModel.*output = states"):
        ours(tmp_path, "projected", CAPTIONS)
    (tmp_path / "modules.json").unlink()
    with pytest.raises(UserError, match=r"or a folder with modules\.json; 'a', of model type 'bert', has none"):
        ours(tmp_path, "projected", CAPTIONS)


def content(folder: Path) -> str:
    pretrained._content.cache_clear()
    return pretrained.fingerprint(TransformerSettings(weights="a"), {"a": folder})


def test_the_hash_of_weights_counts_dense_layers_and_files_that_a_slow_tokenizer_reads(tmp_path: Path) -> None:
    write(tmp_path, "LaBSE")
    (tmp_path / "vocab.txt").write_text("a")
    first = content(tmp_path)
    (tmp_path / "vocab.txt").write_text("b")
    assert content(tmp_path) == first, "tokenizer.json is read in its place, and caches of BERT stay"
    change(tmp_path, "2_Dense/config.json", bias=False)
    hashes = [first, content(tmp_path)]
    (tmp_path / "tokenizer.json").unlink()
    hashes.append(content(tmp_path))
    for name in ("vocab.txt", "merges.txt", "spiece.model"):
        (tmp_path / name).write_text("c")
        hashes.append(content(tmp_path))
    assert len({*hashes}) == len(hashes)


def siglip(folder: Path) -> None:
    """SigLIP in the form of its hub: a sentencepiece model, of which transformers has no fast tokenizer."""
    options = {"pad_id": 0, "eos_id": 1, "unk_id": 2, "bos_id": -1, "vocab_size": 60, "hard_vocab_limit": False}
    lines = iter([caption.lower() for caption in CAPTIONS] * 9)
    with (folder / "spiece.model").open("wb") as file:
        sentencepiece.SentencePieceTrainer.train(sentence_iterator=lines, model_writer=file, minloglevel=9, **options)
    slow = transformers.SiglipTokenizer(str(folder / "spiece.model"), pad_token="</s>", model_max_length=64)
    text = {**SIZES, "vocab_size": len(slow), "projection_size": 64, "max_position_embeddings": 64}
    network(folder, "siglip", {"text_config": text, "vision_config": VISION}, UNSAID)
    slow.save_pretrained(folder)


def test_siglip_is_read_by_its_own_tokenizer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    siglip(tmp_path)
    words, whole = (
        transformers.SiglipTokenizer.from_pretrained(tmp_path),
        transformers.AutoModel.from_pretrained(tmp_path),
    )
    given = words(CAPTIONS, padding="max_length", max_length=64, truncation=True, return_tensors="pt")["input_ids"]
    with torch.inference_mode():
        expected = whole.eval().get_text_features(input_ids=given).pooler_output
    assert_same(ours(tmp_path, "projected", CAPTIONS, most=99), list(expected))
    monkeypatch.setitem(sys.modules, "sentencepiece", None)
    with pytest.raises(UserError, match=r"the tokenizer of weights 'a' needs sentencepiece.*'goalgrid\[pretrained\]'"):
        ours(tmp_path, "projected", CAPTIONS)
