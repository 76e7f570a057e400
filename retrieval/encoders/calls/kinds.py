"""Kinds of networks that are known and cannot be called here, each with what to take instead."""

from pathlib import Path

from goalgrid.grid.errors import UserError
from goalgrid.grid.store.files import read_json

NAFLEX = (
    "it reads patches of pictures in their own proportions (NaFlex). Take a SigLIP 2 of a fixed size, e.g. "
    "google/siglip2-base-patch16-224"
)
WRITES = "its encoder has a decoder behind it: it writes texts. Take an encoder alone, e.g. answerdotai/ModernBERT-base"
LANGUAGE = "it has to be told the language of a caption. Take FacebookAI/xlm-roberta-base"
TIMM = "it needs timm and torchvision. Take a network that transformers itself has"
VISION_LANGUAGE = "it answers to pictures with text, and compares none. Take a network with two towers, e.g. CLIP"
REFUSED: dict[str, dict[str, str]] = {
    "image": {
        **dict.fromkeys(("siglip2", "siglip2_vision_model"), NAFLEX),
        "timm_wrapper": TIMM,
        **dict.fromkeys(("llava", "qwen2_vl", "qwen2_5_vl", "paligemma"), VISION_LANGUAGE),
    },
    "text": {
        **dict.fromkeys(("bart", "mbart", "pegasus", "marian", "m2m_100", "led", "blenderbot", "longt5"), WRITES),
        "xmod": LANGUAGE,
        "timm_wrapper": TIMM,
        **dict.fromkeys(("llava", "qwen2_vl", "qwen2_5_vl", "paligemma"), VISION_LANGUAGE),
    },
}
"""By side and by kind as `transformers` names it, why it cannot be called."""


def check_kind(side: str, folder: Path, weights: str) -> None:
    """Raise a UserError if the network in this folder is of a kind that cannot be called.

    Args:
        side: "image" or "text".
        weights: their name, for the message.
    """
    config = read_json(folder / "config.json")
    kind = str(config.get("model_type", ""))
    why = REFUSED[side].get(kind)
    if why is None and "auto_map" in config and not _known(kind):
        why = "it needs code of its own, which is not run. Take a network that transformers itself has"
    if why is not None:
        raise UserError(f"weights {weights!r} are of the kind {kind!r}, which cannot be called: {why}.")


def _known(kind: str) -> bool:
    """Whether `transformers` has the kind; asked only of folders that name code of their own."""
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING

    return kind in CONFIG_MAPPING
