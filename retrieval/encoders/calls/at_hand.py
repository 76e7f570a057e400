"""Whether the weights of a network are on this machine: told without the network, and without torch."""

import os
from collections.abc import Mapping
from pathlib import Path

from goalgrid.grid.errors import UserError
from goalgrid.grid.settings.pretrained_networks import RANDOM, Pretrained


def at_hand(settings: Pretrained, places: Mapping[str, Path]) -> Path | None:
    """Return the folder of these weights, or of the hub's cache; None: they are not here, or have no folder.

    Raises:
        UserError: the folder is in another library's form.
    """
    if settings.weights == RANDOM or settings.of_file:
        return None
    if settings.weights not in places:
        return _cached(settings.weights)
    folder = places[settings.weights].expanduser()
    if (folder / "config.json").is_file():
        return folder
    if (folder / "open_clip_config.json").is_file():
        raise UserError(
            f"weights {settings.weights!r}: {folder} is in the form of open_clip, which is not read. Take an export "
            "for transformers, e.g. laion/CLIP-ViT-B-32-laion2B-s34B-b79K; PE-Core and EVA-CLIP have none."
        )
    return None


def _cached(name: str) -> Path | None:
    """The folder of the hub's cache, whose package is imported only where there is a cache."""
    home = os.environ.get("HF_HUB_CACHE") or Path(os.environ.get("HF_HOME", "~/.cache/huggingface"), "hub").expanduser()
    if not Path(home).is_dir():
        return None
    try:
        from huggingface_hub import try_to_load_from_cache
    except ImportError:
        return None
    config = try_to_load_from_cache(name, "config.json")
    return Path(config).parent if isinstance(config, str) else None
