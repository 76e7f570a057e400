"""Tiny networks of `transformers`, saved as the local folders that users point --weights at."""

from collections.abc import Sequence
from pathlib import Path

import pytest

TRANSFORMERS = pytest.importorskip("transformers")
SMALL = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 24}
STAGES = {"embedding_size": 8, "hidden_sizes": [8, 8, 16, 16], "depths": [1, 1, 1, 1]}
WORDS = [
    "[PAD]",
    "[UNK]",
    "[CLS]",
    "[SEP]",
    "[MASK]",
    *["a", "dog", "run", "##s", "over", "the", "green", "gr", "##ass", "man", "in", "red", "shirt"],
]


def save(folder: Path, kind: str, *, size: int = 32, words: Sequence[str] = WORDS) -> Path:
    """Save an untrained network of this kind, with a tokenizer where it reads text.

    Args:
        size: side of the pictures that a vision transformer takes, in pixels.
        words: what its tokenizer knows, `WORDS` and more.
    """
    import transformers as t

    t.logging.set_verbosity_error()
    t.logging.disable_progress_bar()
    if kind in ("clip", "clip-read", "siglip"):
        vision, text = {**SMALL, "image_size": size, "patch_size": 16}, {**SMALL, "vocab_size": len(words)}
        text |= {"eos_token_id": WORDS.index("[SEP]")} if kind != "siglip" else {"max_position_embeddings": 16}
        ends = {} if kind == "siglip" else {"projection_dim": 16}
        config = t.AutoConfig.for_model(kind.removesuffix("-read"), text_config=text, vision_config=vision, **ends)
        t.AutoModel.from_config(config).save_pretrained(folder)
    elif kind == "bert":
        t.BertModel(t.BertConfig(vocab_size=len(words), **SMALL)).save_pretrained(folder)
    elif kind == "openai-gpt":
        t.OpenAIGPTModel(t.OpenAIGPTConfig(vocab_size=len(words), n_embd=16, n_layer=1, n_head=2)).save_pretrained(
            folder
        )
    else:
        sizes = STAGES if kind == "resnet" else {"hidden_sizes": [8, 8, 16, 16], "depths": [1, 1, 1, 1]}
        if kind == "vit":
            sizes = {**SMALL, "image_size": size, "patch_size": 16}
        config = t.AutoConfig.for_model(kind, **sizes)
        t.AutoModel.from_config(config).save_pretrained(folder)
    if kind in ("bert", "clip-read", "siglip", "openai-gpt"):
        (folder / "vocab.txt").write_text("\n".join(words) + "\n")
        t.BertTokenizer(str(folder / "vocab.txt")).save_pretrained(folder)
    return folder
