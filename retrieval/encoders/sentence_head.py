"""The modules after the text network in a sentence-transformers folder: pooling, dense layers, normalisation."""

from pathlib import Path

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from goalgrid.grid.errors import UserError, in_short
from goalgrid.grid.settings.poolings import PoolingSettings
from goalgrid.grid.store.files import read_json
from goalgrid.retrieval.encoders.calls.sentence_modules import ACTIVATIONS, SentenceModules
from goalgrid.retrieval.encoders.pooling import pooling


class SentenceHead(nn.Module):
    """Pools hidden states to a vector, applies the dense layers, and normalises it if the folder says so."""

    def __init__(self, modules: SentenceModules, width: int) -> None:
        super().__init__()
        self.pool = pooling(PoolingSettings.model_validate({"pooling": modules.pooling}), width)
        self.dense, self.unit = nn.Sequential(*map(_dense, modules.dense)), modules.unit
        widths = [layer.out_features for layer in self.dense.modules() if isinstance(layer, nn.Linear)]
        self.width = widths[-1] if widths else width

    def forward(self, states: Float[Tensor, "b n k"], present: Bool[Tensor, "b n"]) -> Float[Tensor, "b d"]:
        vectors: Tensor = self.dense(self.pool(states, present))
        return nn.functional.normalize(vectors, dim=-1) if self.unit else vectors


def _dense(folder: Path) -> nn.Sequential:
    """Load a linear map and its activation; raises UserError if the folder does not contain them."""
    fields = read_json(folder / "config.json")
    try:
        name = str(fields["activation_function"]).rpartition(".")[2]
        if name not in ACTIVATIONS:
            raise ValueError(
                f"its activation is {fields['activation_function']}; supported are {', '.join(ACTIVATIONS)}"
            )
        layer = nn.Linear(fields["in_features"], fields["out_features"], bias=fields.get("bias", True))
        weights = {key.removeprefix("linear."): value.float() for key, value in _weights(folder).items()}
        layer.load_state_dict(weights)
    except Exception as error:  # readers of damaged files raise many kinds of errors
        raise UserError(
            f"the dense layer {folder} cannot be read: {in_short(error)}. Download its files again."
        ) from error
    activation: nn.Module = getattr(nn, name)()
    return nn.Sequential(layer, activation)


def _weights(folder: Path) -> dict[str, Tensor]:
    if (folder / "model.safetensors").is_file():
        from safetensors.torch import load_file

        return load_file(folder / "model.safetensors")
    weights: dict[str, Tensor] = torch.load(folder / "pytorch_model.bin", map_location="cpu", weights_only=True)
    return weights
