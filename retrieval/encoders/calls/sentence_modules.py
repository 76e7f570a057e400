"""The vector of a caption by the modules of a sentence-transformers folder: a pooling, dense layers, unit length."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from goalgrid.grid.errors import UserError, parsed_json, regular_bytes
from goalgrid.grid.store.files import read_json

POOLINGS = {
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_cls_token": "first",
    "pooling_mode_lasttoken": "last",
    "pooling_mode_max_tokens": "max",
}
"""By the field of a 1_Pooling/config.json, our pooling."""
ACTIVATIONS = ("Identity", "Tanh", "ReLU", "GELU")
"""Of a dense layer, by the last part of its dotted name."""


@dataclass(frozen=True)
class SentenceModules:
    """What follows a text network, in order.

    Args:
        pooling: one of ours.
        dense: folders of the dense layers.
        unit: whether the vector is brought to unit length at the end.
    """

    pooling: str
    dense: tuple[Path, ...] = ()
    unit: bool = False

    def text(self) -> str:
        dense = [f"{path.name}" for path in self.dense]
        return ", then ".join([f"pooled by {self.pooling}", *dense, *["unit length"] * self.unit])


def sentence_modules(folder: Path, weights: str) -> SentenceModules | None:
    """Return the modules that a folder's modules.json lists; None: it has no such file.

    Raises:
        UserError: it lists a module or a pooling that is not known.
    """
    if not (folder / "modules.json").is_file():
        return None
    try:
        listed = parsed_json(regular_bytes(folder / "modules.json"))
        kinds = [str(entry["type"]).rpartition(".")[2] for entry in listed]
        paths = [folder / str(entry["path"]) for entry in listed]
        known = kinds[:2] == ["Transformer", "Pooling"] and {*kinds[2:]} <= {"Dense", "Normalize"}
        if not known or "Normalize" in kinds[2:-1] or paths[0] != folder:
            raise ValueError(f"it lists {', '.join(kinds)}")
        dense = tuple(path for kind, path in zip(kinds, paths, strict=True) if kind == "Dense")
        return SentenceModules(_pooling(read_json(paths[1] / "config.json")), dense, kinds[-1] == "Normalize")
    except (OSError, KeyError, TypeError, ValueError) as error:
        raise UserError(
            f"the vector of weights {weights!r} cannot be taken from modules.json: {error}. Known are a Transformer in "
            "the folder itself, a Pooling by mean, first, last or max, Dense layers and Normalize. Set "
            "model.text.output = states, and choose model.text.pooling."
        ) from error


def _pooling(fields: Mapping[str, Any]) -> str:
    asked = [name for name, value in fields.items() if name.startswith("pooling_mode_") and value]
    if len(asked) != 1 or asked[0] not in POOLINGS or not fields.get("include_prompt", True):
        prompt = "" if fields.get("include_prompt", True) else " without the prompt's tokens"
        raise ValueError(f"it pools by {' and '.join(asked) or 'nothing'}{prompt}")
    return POOLINGS[asked[0]]
