"""Networks of `transformers` by name: the folder of their weights, a hash of its content, and how they are built.

A name is a hub's (`google-bert/bert-base-uncased`). The user names its folder; else the hub's own cache is asked, then
the hub. This is the only file that imports `transformers`, and it does so when a network is built.
"""

import hashlib
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch
from torch import nn

from grid.encoders import RANDOM, Pretrained
from grid.errors import UserError
from grid.identity import digest

Places = Mapping[str, Path]
"""Folder by name of weights."""

_TOKENIZERS = ("tokenizer.json", "vocab.txt", "vocab.json", "tokenizer.model", "spiece.model")
_FILES = ("*.json", "*.txt", "*.model", "*.safetensors")


def locate(settings: Pretrained, places: Places) -> Path | None:
    """The folder of these weights; None for random ones.

    Raises:
        UserError: they are neither where the user says, nor in the hub's cache, nor on the hub.
    """
    name = settings.weights
    if name == RANDOM:
        return None
    if name not in places:
        return _from_hub(name)
    folder = places[name].expanduser()
    if not (folder / "config.json").exists():
        raise UserError(f"no config.json in {folder}, the folder of weights {name!r}: save_pretrained() writes one.")
    return folder


def fingerprint(settings: Pretrained, places: Places) -> str:
    """Hash of the files that a network is loaded from, or of its architecture."""
    folder = locate(settings, places)
    return digest(settings.architecture)[:16] if folder is None else _content(folder)


def network(settings: Pretrained, places: Places, *, part: str, **sizes: int) -> nn.Module:
    """The network with its weights; of a two-tower model the tower called `part`.

    Args:
        sizes: of a network with random weights, over those of its architecture, e.g. `vocab_size`.

    Raises:
        UserError: the weights cannot be found or read, or the architecture is none that `transformers` knows.
    """
    import transformers

    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    folder = locate(settings, places)
    try:
        whole = _random(settings, sizes) if folder is None else transformers.AutoModel.from_pretrained(folder)
    except (OSError, ValueError, TypeError, ImportError, KeyError) as error:
        what = f"weights {settings.weights!r}" if folder else f"architecture {settings.architecture}"
        raise UserError(f"{what} cannot be loaded: {' '.join(str(error).split())}") from error
    tower: nn.Module = getattr(whole, part, whole)
    _without_unused(tower)
    return tower.float()


def tokenizer(settings: Pretrained, places: Places) -> Any:
    """The tokenizer that stands beside the weights.

    Raises:
        UserError: there is none.
    """
    import transformers

    folder = locate(settings, places)
    assert folder is not None, "a network with random weights reads words"
    if not any((folder / name).exists() for name in _TOKENIZERS):
        raise UserError(
            f"weights {settings.weights!r} have no tokenizer: {folder} has none of {', '.join(_TOKENIZERS)}."
        )
    try:
        return transformers.AutoTokenizer.from_pretrained(folder)
    except (OSError, ValueError, KeyError) as error:
        raise UserError(f"weights {settings.weights!r} have no tokenizer in {folder}: {error}") from error


def _random(settings: Pretrained, sizes: Mapping[str, int]) -> nn.Module:
    """A network from its architecture, started from a seed that depends on the architecture alone."""
    import transformers

    fields = {**settings.architecture, **sizes}
    config = transformers.AutoConfig.for_model(str(fields.pop("model_type")), **fields)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(int(digest(settings.architecture)[:8], 16))
        return transformers.AutoModel.from_config(config)


def _without_unused(tower: nn.Module) -> None:
    """Drop a learnt pooler: nothing reads what it gives."""
    pooler = getattr(tower, "pooler", None)
    if isinstance(pooler, nn.Module) and any(True for _ in pooler.parameters()):
        setattr(tower, "pooler", None)  # noqa: B010


@lru_cache(maxsize=16)
def _from_hub(name: str) -> Path:
    from huggingface_hub import snapshot_download

    try:
        folder = Path(snapshot_download(name, allow_patterns=list(_FILES)))
        if not any(folder.glob("*.safetensors")):
            folder = Path(snapshot_download(name, allow_patterns=[*_FILES, "*.bin"]))
    except Exception as error:  # of the hub, the network, or the cache: the hub's client has no one base class
        reason = " ".join(str(error).split())[:200]
        raise UserError(
            f"weights {name!r} cannot be fetched from the model hub: {reason} Where they lie on this machine is said "
            f'by --weights {name}=DIR, or in the grid file: [weights] "{name}" = "DIR".'
        ) from error
    return folder


@lru_cache(maxsize=16)
def _content(folder: Path) -> str:
    """SHA-256 over the configuration and the weights, 16 digits."""
    summed = hashlib.sha256()
    for file in sorted(path for path in folder.iterdir() if path.suffix in (".json", ".safetensors", ".bin")):
        summed.update(file.name.encode())
        with file.open("rb") as stream:
            summed.update(hashlib.file_digest(stream, "sha256").digest())
    return summed.hexdigest()[:16]
