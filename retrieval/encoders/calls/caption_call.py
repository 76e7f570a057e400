"""How captions reach a pretrained text network, as its authors call it: by the files of its folder, not by defaults.

A config's padding id is no source: the default that transformers has for SigLIP is CLIP's, and no published file
overrides it. Nor is the length of a data set: a network reads so many tokens as it has places.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from goalgrid.grid.errors import UserError
from goalgrid.grid.settings.pretrained_networks import PUBLISHED, RANDOM, Pretrained
from goalgrid.grid.settings.text_encoders import TextEncoderSettings, TransformerSettings
from goalgrid.grid.store.files import read_json
from goalgrid.retrieval.encoders import pretrained

FILLED = ("siglip", "siglip_text_model", "siglip2", "siglip2_text_model")
"""Kinds that read no mask: captions are filled up to the network's places, and it sees what fills them."""
LOWERED = ("siglip",)
"""Kinds that were trained on lower case, where the tokenizer keeps capitals. Of SigLIP 2 no file says so.

google-research/big_vision, SigLIP2_demo.ipynb. SigLIP 1, of the same kind, fills captions with its end token, and its
tokenizer lowers them, as that of NaFlex does.
"""
AFTER_PADDING = ("roberta", "xlm-roberta", "xlm-roberta-xl", "camembert", "mpnet", "data2vec-text", "longformer")
"""Kinds whose first place is the one after the padding id: as many of their positions hold no token."""
FILLED_BEFORE = 1
"""What filled captions before their tokenizer was asked, unless a config.json says otherwise: transformers' default."""
UNLIMITED = 1_000_000
"""A tokenizer without a length of its own has one far above this."""


def lowers(settings: Pretrained, places: pretrained.Places, tokenizer: Any) -> bool:
    """Whether captions are lowered before this tokenizer of the weights reads them."""
    if _published(settings) and _sentences(settings, places).get("do_lower_case", False):
        return True
    return kind_of(settings, places) in LOWERED and tokenizer.pad_token_id != tokenizer.eos_token_id


def length_of(settings: Pretrained, places: pretrained.Places, tokenizer: Any) -> int | None:
    """Tokens at which captions are cut, the end token kept; None: neither tokenizer nor network has a length."""
    return _shortest(settings, places, tokenizer.model_max_length)


def places_of(settings: Pretrained, places: pretrained.Places) -> int | None:
    """Tokens at which captions are cut, by the files alone; None: no file says so."""
    return _shortest(settings, places, _content(settings, places, "tokenizer_config.json").get("model_max_length"))


def check_places(text: TextEncoderSettings, length: int | None) -> None:
    """Raise a UserError if the encoder is told to read more tokens than its network has places."""
    if length is not None and text.max_words is not None and text.max_words > length:
        raise UserError(
            f"model.text.max_words = {text.max_words}: the network reads {length} tokens of a caption at most, special "
            f"tokens included. Set it to {length} or less."
        )


def fill_of(settings: Pretrained, places: pretrained.Places) -> int | None:
    """The index that fills captions up; None: the network reads a mask. UserError: its tokenizer has none."""
    if kind_of(settings, places) not in FILLED:
        return None
    if settings.weights == RANDOM:
        return fill_before(settings, places)
    fill: int | None = pretrained.tokenizer(settings, places).pad_token_id
    if fill is None:
        raise UserError(
            f"the tokenizer of weights {settings.weights!r} names no padding token, and their network sees what fills "
            "its captions. Fetch tokenizer_config.json again."
        )
    return fill


def fill_before(settings: Pretrained, places: pretrained.Places) -> int:
    """The index that filled captions before their tokenizer was asked: caches know it without a name."""
    return int(_text(pretrained.config_of(settings, places)).get("pad_token_id", FILLED_BEFORE))


def prompt_of(folder: Path) -> str:
    """The words that sentence-transformers puts before a text by default; empty where the folder names none."""
    content = read_json(folder / "config_sentence_transformers.json")
    prompts = content.get("prompts") or {}
    return str(prompts.get(content.get("default_prompt_name") or "", ""))


def kind_of(settings: Pretrained, places: pretrained.Places) -> str:
    """The kind of the network as `transformers` names it; of two towers, that of the whole."""
    return str(pretrained.config_of(settings, places).get("model_type", ""))


def _shortest(settings: Pretrained, places: pretrained.Places, of_tokenizer: int | None) -> int | None:
    config = pretrained.config_of(settings, places)
    positions = _text(config).get("max_position_embeddings", 0)
    if kind_of(settings, places) in AFTER_PADDING:
        positions -= config.get("pad_token_id", FILLED_BEFORE) + 1
    published = _sentences(settings, places).get("max_seq_length") if _published(settings) else None
    lengths = (of_tokenizer or 0, positions, published or 0)
    return min((int(length) for length in lengths if 0 < length < UNLIMITED), default=None)


def _published(settings: Pretrained) -> bool:
    return isinstance(settings, TransformerSettings) and settings.call == PUBLISHED


def _sentences(settings: Pretrained, places: pretrained.Places) -> Mapping[str, Any]:
    return _content(settings, places, "sentence_bert_config.json")


def _content(settings: Pretrained, places: pretrained.Places, name: str) -> Mapping[str, Any]:
    folder = pretrained.locate(settings, places)
    return {} if folder is None else read_json(folder / name)


def _text(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """The part of a config that is the text network's."""
    part: Mapping[str, Any] = config.get("text_config", config)
    return part
