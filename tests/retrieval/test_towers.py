"""Pretrained networks as model hubs have them, tiny and random: our vectors are those of the documented call.

What each call is: `docs/recipes.md`, "Towers that are tested". Weights are large enough that a wrong token shows, and
config.json lacks what published files lack.
"""

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from goalgrid.grid.errors import UserError
from goalgrid.grid.settings.image_encoders import BackboneSettings
from goalgrid.grid.settings.text_encoders import TransformerSettings
from goalgrid.retrieval.encoders import pretrained
from goalgrid.retrieval.encoders import text as encoders
from goalgrid.retrieval.encoders.vision import Vision
from goalgrid.retrieval.features import CaptionSource
from goalgrid.retrieval.words import text_readers
from tests.conftest import ROOT

transformers = pytest.importorskip("transformers")
pytestmark = pytest.mark.gate

VOCABULARY = "a red blue circle the small dog on left of cat two men play chess photo an apple in new york city ."
LONG = "two men play chess in New York City . " * 9
CAPTIONS = ["blue", "a red circle", "A photo of an Apple .", "the small dog on the left of a cat and two men", LONG]
SIZES = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 128}
VISION = {**SIZES, "image_size": 64, "patch_size": 16}
GROUPED = {**SIZES, "num_key_value_heads": 2, "head_dim": 16}
MOST = 60
"""Tokens at which a data set cuts captions."""


@dataclass(frozen=True)
class Text:
    """A text network as its authors call it.

    Args:
        special: index of each special token, at the places that published tokenizers have.
        single: the caption `$A` between special tokens.
        tokenizer: its further options.
        sizes: of the network; `whole` where it is a tower of a whole.
        filled: places that are filled, with no mask; None: padded to the longest, with a mask.
        lacks: fields of the text network that published files lack.
    """

    special: Mapping[str, int]
    single: str
    tokenizer: Mapping[str, Any] = field(default_factory=dict)
    sizes: Mapping[str, Any] = field(default_factory=lambda: SIZES)
    whole: bool = False
    filled: int | None = None
    lower: bool = False
    lacks: tuple[str, ...] = ()


BERT = {"[PAD]": 0, "[UNK]": 1, "[CLS]": 2, "[SEP]": 3}, "[CLS] $A [SEP]"
ROBERTA = {"<s>": 0, "<pad>": 1, "</s>": 2, "<unk>": 3}, "<s> $A </s>"
LLAMA = {"<pad>": 0, "<eos>": 1, "<bos>": 2, "<unk>": 3}
T5 = {"d_model": 64, "d_kv": 16, "d_ff": 128, "num_layers": 2, "num_heads": 4}
UNMASKED = {"model_input_names": ["input_ids"]}
UNSAID = ("pad_token_id", "bos_token_id", "eos_token_id")
TEXT: dict[str, tuple[str, Text]] = {
    "BERT": ("bert", Text(*BERT)),
    "DistilBERT": ("distilbert", Text(*BERT, sizes={"dim": 64, "n_layers": 2, "n_heads": 4, "hidden_dim": 128})),
    "RoBERTa": ("roberta", Text(*ROBERTA)),
    "XLM-R": ("xlm-roberta", Text(*ROBERTA)),
    "MPNet": ("mpnet", Text(*ROBERTA)),
    "DeBERTa v2": ("deberta-v2", Text(*BERT)),
    "ModernBERT": ("modernbert", Text(*BERT, sizes={**SIZES, "pad_token_id": 0, "local_attention": 8})),
    "EuroBERT": (
        "eurobert",
        Text(LLAMA, "<bos> $A <eos>", sizes={**SIZES, "num_key_value_heads": 2, "pad_token_id": 0}),
    ),
    "Nomic": ("nomic_bert", Text(*BERT)),
    "jina v3": ("jina_embeddings_v3", Text(*ROBERTA)),
    "Qwen3-Embedding": ("qwen3", Text({"<unk>": 1, "<eos>": 2}, "$A <eos>", {"padding_side": "left"}, GROUPED)),
    "EmbeddingGemma": (
        "gemma3_text",
        Text(LLAMA, "<bos> $A <eos>", {"padding_side": "left"}, {**GROUPED, "use_bidirectional_attention": True}),
    ),
    "T5": ("t5", Text(LLAMA, "$A <eos>", sizes=T5)),
    "mT5": ("mt5", Text(LLAMA, "$A <eos>", sizes={**T5, "feed_forward_proj": "gated-gelu"})),
    "CLIP": (
        "clip",
        Text({"<bos>": 90, "<eos>": 91, "<unk>": 92}, "<bos> $A <eos>", {"model_max_length": 77}, whole=True),
    ),
    "MetaCLIP 2": ("metaclip_2", Text(*ROBERTA, {"model_max_length": 77}, {**SIZES, "eos_token_id": 2}, whole=True)),
    "SigLIP": (
        "siglip",
        Text({"<x>": 0, "<eos>": 1, "<unk>": 2}, "$A <eos>", UNMASKED, whole=True, filled=64, lacks=UNSAID),
    ),
    "SigLIP so400m at 224": (
        "siglip",
        Text({"<x>": 0, "<eos>": 1, "<unk>": 2}, "$A <eos>", UNMASKED, whole=True, filled=16, lacks=UNSAID),
    ),
    "SigLIP 2 NaFlex": (
        "siglip2",
        Text(LLAMA, "$A <eos>", {**UNMASKED, "padding_side": "right"}, whole=True, filled=64, lacks=UNSAID),
    ),
    "AIMv2": (
        "aimv2",
        Text({"<bos>": 90, "<eos>": 91, "<unk>": 92}, "<bos> $A <eos>", {"model_max_length": 77}, whole=True),
    ),
    "TIPSv2": ("tipsv2", Text({"<pad>": 0, "<unk>": 1}, "$A", {"model_max_length": 64}, whole=True)),
    "SigLIP 2": ("siglip", Text(LLAMA, "$A <eos>", UNMASKED, whole=True, filled=64, lower=True, lacks=UNSAID)),
}
"""By name, the kind as `transformers` names it, and the call."""
STATES = [name for name, (_, call) in TEXT.items() if not call.whole or call.filled]
PROJECTED = [name for name, (_, call) in TEXT.items() if call.whole]


def tokenizer(folder: Path, call: Text) -> Any:
    """A tokenizer of words, written to the folder: capitals and small letters are different words."""
    from tokenizers import Tokenizer, models, pre_tokenizers, processors

    words = VOCABULARY.split()
    free = (index for index in range(99) if index not in call.special.values())
    vocabulary = dict(call.special) | {word: next(free) for word in dict.fromkeys([*words, *map(str.title, words)])}
    unknown = next(name for name in call.special if "unk" in name.lower())
    raw = Tokenizer(models.WordLevel(vocabulary, unk_token=unknown))
    raw.pre_tokenizer = pre_tokenizers.Whitespace()
    raw.post_processor = processors.TemplateProcessing(single=call.single, special_tokens=list(call.special.items()))
    ends = ("<eos>", "</s>", "[SEP]")
    end = next((name for name in call.special if name in ends), None)
    pad = next((name for name in call.special if "pad" in name.lower()), end)
    options = {"unk_token": unknown, "pad_token": pad, "eos_token": end, "model_max_length": call.filled or 512}
    ours = transformers.PreTrainedTokenizerFast(tokenizer_object=raw, **{**options, **call.tokenizer})
    ours.save_pretrained(folder)
    return ours


def network(folder: Path, kind: str, sizes: Mapping[str, Any], lacks: tuple[str, ...] = ()) -> Any:
    """A network of this kind, written to the folder without these fields of its text network, and read from there."""
    torch.manual_seed(0)
    options = {"add_pooling_layer": True} if kind == "data2vec-vision" else {}
    made = transformers.AutoModel.from_config(transformers.AutoConfig.for_model(kind, **sizes), **options)
    for name, weight in made.named_parameters():
        if weight.ndim == 2 and "position" not in name:
            torch.nn.init.normal_(weight, std=0.3)
        elif "pooler" in name:
            torch.nn.init.normal_(weight)
    made.save_pretrained(folder)
    config = json.loads((folder / "config.json").read_text())
    for name in lacks:
        config.get("text_config", config).pop(name, None)
    (folder / "config.json").write_text(json.dumps(config))
    return transformers.AutoModel.from_pretrained(folder, **options).eval()


def saved(folder: Path, name: str) -> Any:
    """The whole network of this name, with its tokenizer, in the folder."""
    kind, call = TEXT[name]
    words = len(tokenizer(folder, call)) + 60  # CLIP's special tokens are its last
    sizes = {**call.sizes, "vocab_size": words}
    if call.whole:
        ends = {} if kind.startswith("siglip") else {"projection_dim": 32}
        text = sizes | ({"max_position_embeddings": call.filled, "projection_size": 64} if call.filled else {})
        text |= {"eos_token_id": 91} if kind in ("clip", "aimv2") else {}
        vision = {**SIZES, "patch_size": 16, "num_patches": 16} if kind == "siglip2" else VISION
        sizes = {"text_config": {**text, **ends}, "vision_config": {**vision, **ends}, **ends}
    return network(folder, kind, sizes, call.lacks)


def loaded(folder: Path, name: str) -> Any:
    """The network as its authors load it: the encoder of T5 alone; and AIMv2 where a mask makes it causal."""
    if "T5" in name:
        return transformers.AutoModelForTextEncoding.from_pretrained(folder).eval()
    how = {"attn_implementation": "eager"} if name == "AIMv2" else {}
    return transformers.AutoModel.from_pretrained(folder, **how).eval()


def documented(folder: Path, name: str, output: str, captions: list[str]) -> list[Tensor]:
    """The vector of each caption, or the states of its tokens, as the model card says to compute them."""
    _, call = TEXT[name]
    words, whole = (
        transformers.AutoTokenizer.from_pretrained(folder),
        loaded(folder, name),
    )
    given = [caption.lower() for caption in captions] if call.lower else captions
    padding, most = ("max_length", call.filled) if call.filled else (True, MOST)
    batch = words(given, padding=padding, max_length=most, truncation=True, return_tensors="pt")
    mask = None if call.filled else batch["attention_mask"]
    with torch.inference_mode():
        if output == "projected":
            return list(whole.get_text_features(input_ids=batch["input_ids"], attention_mask=mask).pooler_output)
        tower = whole.text_model if call.whole else whole
        states = tower(input_ids=batch["input_ids"], attention_mask=mask).last_hidden_state
    if mask is not None:
        return [row[here.bool()] for row, here in zip(states, mask, strict=True)]
    lengths = [len(words(caption, max_length=most, truncation=True)["input_ids"]) for caption in given]
    return [row[:length] for row, length in zip(states, lengths, strict=True)]


def ours(folder: Path, output: str, captions: list[str], *, most: int = MOST, fill: int = 0) -> list[Tensor]:
    """The same by goalgrid, with an index that stands where no token is."""
    settings = TransformerSettings(weights="a", output=output, frozen=True, head="none")  # type: ignore[arg-type]
    reader = text_readers.build(settings, captions, places={"a": folder})
    tokens = reader.encode(captions, max_words=settings.longest(most))
    tower = encoders.text_network(settings, len(reader), {"a": folder}).eval()
    ids = tokens.ids.where(encoders.present_of(tokens.ids, tokens.lengths), fill)
    with torch.inference_mode():
        given = encoders.features_of(tower, output, ids, tokens.lengths)
    if output == "projected":
        return list(given)
    return [row[:length] for row, length in zip(given, tokens.lengths.tolist(), strict=True)]


def assert_same(found: list[Tensor], expected: list[Tensor], what: str = "") -> None:
    for one, other in zip(found, expected, strict=True):
        assert one.shape == other.shape, what
        cosine = torch.nn.functional.cosine_similarity(one, other, dim=-1).min()
        assert cosine >= 1 - 1e-6, what
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-5 * float(other.abs().max()))


@pytest.mark.parametrize(
    ("name", "output"), [*((name, "states") for name in STATES), *((name, "projected") for name in PROJECTED)]
)
def test_captions_have_the_vectors_of_the_documented_call(name: str, output: str, tmp_path: Path) -> None:
    """In a batch of unequal lengths, and each alone; what stands where no token is changes nothing."""
    saved(tmp_path, name)
    expected = documented(tmp_path, name, output, CAPTIONS)
    found = ours(tmp_path, output, CAPTIONS, most=99 if TEXT[name][1].filled else MOST)
    assert_same(found, expected)
    assert_same([ours(tmp_path, output, [caption])[0] for caption in CAPTIONS[:3]], found[:3], "alone")
    assert_same(ours(tmp_path, output, CAPTIONS[:4], fill=5), found[:4], "another index behind the captions")


IMAGES: dict[str, tuple[str, Mapping[str, Any], str]] = {
    "DINOv2": ("dinov2", VISION, "pooled"),
    "DINOv2 with registers": ("dinov2_with_registers", {**VISION, "num_register_tokens": 4}, "pooled"),
    "DINOv3": ("dinov3_vit", {**VISION, "num_register_tokens": 4}, "pooled"),
    "DINOv3 ConvNeXt": ("dinov3_convnext", {"hidden_sizes": [8, 8, 16, 16], "depths": [1, 1, 1, 1]}, "pooled"),
    "ConvNeXtV2": ("convnextv2", {"hidden_sizes": [8, 8, 16, 16], "depths": [1, 1, 1, 1]}, "pooled"),
    "AIMv2": ("aimv2_vision_model", VISION, "pooled"),
    "BEiT": ("beit", VISION, "pooled"),
    "Data2Vec": ("data2vec-vision", VISION, "pooled"),
    **{name: (TEXT[name][0], {}, "projected") for name in PROJECTED if "NaFlex" not in name},
}
"""By name, the kind as `transformers` names it, its sizes, and what is read of it."""


@pytest.mark.parametrize("name", IMAGES)
def test_images_have_the_vectors_of_the_documented_call(name: str, tmp_path: Path) -> None:
    kind, sizes, output = IMAGES[name]
    whole = network(tmp_path, kind, sizes) if output == "pooled" else saved(tmp_path, name)
    images = torch.randint(0, 256, (3, 3, 64, 64), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    content = {"encoder": "backbone", "weights": "a", "output": output, "size": 64, "statistics": "none"}
    with torch.inference_mode():
        call = whole if output == "pooled" else whole.get_image_features
        expected = call(pixel_values=images / 255).pooler_output.flatten(1)
        found = Vision(BackboneSettings.model_validate(content), {"a": tmp_path}).eval()(images)
    assert_same(list(found), list(expected))


@pytest.mark.parametrize(
    ("name", "output", "kept"),
    [
        ("BERT", "states", True),
        ("CLIP", "projected", True),
        ("SigLIP", "projected", True),
        ("SigLIP", "states", False),
        ("SigLIP 2", "projected", False),
    ],
)
def test_only_caches_of_captions_that_were_filled_wrong_are_left_behind(
    name: str, output: str, kept: bool, tmp_path: Path
) -> None:
    """A cache under the key that the program of c608b168 made, literally, which holds nothing but sevens."""
    saved(tmp_path, name)
    settings, places = TransformerSettings(weights="a", output=output, frozen=True, head="none"), {"a": tmp_path}
    reader = text_readers.build(settings, CAPTIONS, places=places)
    tokens, read = reader.encode(CAPTIONS[:4], max_words=MOST), hashlib.sha256()
    for split in ("train", "val", "test"):
        read.update(f"{split} {tuple(tokens.ids.shape)}".encode() + tokens.ids.numpy().tobytes())
        read.update(tokens.lengths.numpy().tobytes())
    weights = pretrained.fingerprint(settings, places)
    content = {"captions": read.hexdigest(), "weights": weights, "words": 0, "output": output}
    key = hashlib.sha256(json.dumps(content, sort_keys=True, separators=(",", ":")).encode()).hexdigest()
    (folder := tmp_path / f"mine-a-{key[:12]}").mkdir()
    rows = int(tokens.lengths.sum()) if output == "states" else 4
    for split in ("train", "val", "test"):
        np.save(folder / f"{split}.npy", np.full((rows, 64), 7, np.float16))
    source = CaptionSource(
        "mine", tmp_path, settings, places, dict.fromkeys(("train", "val", "test"), tokens), len(reader)
    )
    found = torch.tensor(source.load(torch.device("cpu"))["test"].array).float()
    expected = torch.full((rows, 64), 7.0)
    if not kept:
        vectors = documented(tmp_path, name, output, CAPTIONS[:4])
        expected = torch.cat(vectors) if output == "states" else torch.stack(vectors)
    torch.testing.assert_close(found, expected, rtol=2e-3, atol=2e-3)


def test_docs_list_the_towers_that_are_tested() -> None:
    page = (ROOT / "docs" / "recipes.md").read_text().partition("## Towers that are tested")[2].partition("\n## ")[0]
    assert [name for name in [*TEXT, *IMAGES] if name not in page] == []


def naflex(folder: Path) -> None:
    saved(folder, "SigLIP 2 NaFlex")


def xmod(folder: Path) -> None:
    """It has to be told the language of a caption."""
    tokenizer(folder, Text(*ROBERTA))
    network(folder, "xmod", {**SIZES, "vocab_size": 99})


def bart(folder: Path) -> None:
    """It gives states of its decoder without an error."""
    tokenizer(folder, Text(*ROBERTA))
    sides = {f"{side}_{what}": 1 for side in ("encoder", "decoder") for what in ("layers", "attention_heads")}
    network(folder, "bart", {"vocab_size": 99, "d_model": 16, "max_position_embeddings": 99, **sides})


def seen(folder: Path) -> None:
    content = {"encoder": "backbone", "weights": "a", "output": "projected", "size": 64}
    Vision(BackboneSettings.model_validate(content), {"a": folder})


def read(folder: Path) -> None:
    ours(folder, "states", CAPTIONS)


@pytest.mark.parametrize(
    ("write", "use", "message"),
    [
        (naflex, seen, "NaFlex.*Take a SigLIP 2 of a fixed size"),
        (
            xmod,
            read,
            "have model type 'xmod', which cannot be called with captions alone: .* Choose another text network",
        ),
        (bart, read, "have model type 'bart', an encoder-decoder"),
    ],
)
def test_networks_that_cannot_be_called_are_named(
    write: Callable[[Path], None], use: Callable[[Path], None], message: str, tmp_path: Path
) -> None:
    write(tmp_path)
    with pytest.raises(UserError, match=message):
        use(tmp_path)


def test_a_tokenizer_without_padding_is_named_where_the_network_sees_the_filling(tmp_path: Path) -> None:
    saved(tmp_path, "SigLIP 2")
    for name in ("tokenizer_config.json", "special_tokens_map.json"):
        if (tmp_path / name).exists():
            config = json.loads((tmp_path / name).read_text())
            (tmp_path / name).write_text(
                json.dumps({key: value for key, value in config.items() if key != "pad_token"})
            )
    with pytest.raises(UserError, match=r"names no padding token.*Fetch tokenizer_config\.json again"):
        ours(tmp_path, "projected", CAPTIONS)
