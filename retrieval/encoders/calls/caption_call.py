"""How captions reach a pretrained text network, as its authors call it: by the files of its folder, not by defaults.

A config's padding id is no source: the default that transformers has for SigLIP is CLIP's, and no published file
overrides it. Nor is the length of a data set: a network reads so many tokens as it has places.
"""

from collections.abc import Mapping
from typing import Any

from goalgrid.grid.errors import UserError
from goalgrid.grid.settings.pretrained_networks import RANDOM, Pretrained
from goalgrid.grid.store.files import read_json
from goalgrid.retrieval.encoders import pretrained

FILLED = ("siglip", "siglip_text_model", "siglip2", "siglip2_text_model")
"""Kinds that read no mask: captions are filled up to the network's places, and it sees what fills them."""
LOWERED = ("siglip",)
"""Kinds that were trained on lower case, where the tokenizer keeps capitals. Of SigLIP 2 no file says so.

google-research/big_vision, SigLIP2_demo.ipynb. SigLIP 1, of the same kind, fills captions with its end token, and its
tokenizer lowers them, as that of NaFlex does.
"""
FILLED_BEFORE = 1
"""What filled captions before their tokenizer was asked, unless a config.json says otherwise: transformers' default."""
UNLIMITED = 1_000_000
"""A tokenizer without a length of its own has one far above this."""


def lowers(settings: Pretrained, places: pretrained.Places, tokenizer: Any) -> bool:
    """Whether captions are lowered before this tokenizer of the weights reads them."""
    return _kind(_config(settings, places)) in LOWERED and tokenizer.pad_token_id != tokenizer.eos_token_id


def length_of(settings: Pretrained, places: pretrained.Places, tokenizer: Any) -> int | None:
    """Tokens at which captions are cut, the end token kept; None: neither tokenizer nor network has a length."""
    positions = _text(_config(settings, places)).get("max_position_embeddings", 0)
    return min((length for length in (tokenizer.model_max_length, positions) if 0 < length < UNLIMITED), default=None)


def fill_of(settings: Pretrained, places: pretrained.Places) -> int | None:
    """The index that fills captions up; None: the network reads a mask. UserError: its tokenizer has none."""
    if _kind(_config(settings, places)) not in FILLED:
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
    return int(_text(_config(settings, places)).get("pad_token_id", FILLED_BEFORE))


def _config(settings: Pretrained, places: pretrained.Places) -> Mapping[str, Any]:
    folder = pretrained.locate(settings, places)
    return settings.architecture if folder is None else read_json(folder / "config.json")


def _kind(config: Mapping[str, Any]) -> str:
    return str(config.get("model_type", ""))


def _text(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """The part of a config that is the text network's."""
    part: Mapping[str, Any] = config.get("text_config", config)
    return part
