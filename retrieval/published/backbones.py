"""Networks of others as folders of weights that `transformers` reads: BUTD's ResNet-101, and CLIP by OpenAI's names."""

from pathlib import Path
from typing import Any

from torch import Tensor

from goalgrid.grid.errors import UserError
from goalgrid.grid.store.files import write_json, written_aside
from goalgrid.retrieval.published import clips
from goalgrid.retrieval.published.checkpoint_files import CheckpointFile
from goalgrid.retrieval.published.checkpoint_maps import map_of_family, maps
from goalgrid.retrieval.published.resnets import butd

BUTD = "butd/resnet-101"
"""The name that recipes have for BUTD's backbone."""
HEAD = 64
"""Values of an attention head, in every CLIP of OpenAI."""


def convert(source: Path, folder: Path) -> tuple[str, int]:
    """Write a network to a folder, and return the name that recipes have for it, and how many tensors it has.

    Raises:
        UserError: the file cannot be read, or is another network; or the folder cannot be written.
    """
    from safetensors.torch import save_file

    file = CheckpointFile.read(source)
    theirs = clips.PATCHES in file.weights
    weights, config = _clip(file) if theirs else butd(file)
    name = clips.clip(file.weights)["image.weights"] if theirs else BUTD
    with written_aside(folder / "model.safetensors") as path:
        save_file(weights, path, metadata={"format": "pt"})
    write_json(folder / "config.json", config)
    return name, len(weights)


def _clip(file: CheckpointFile) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """A CLIP by OpenAI's names as `transformers` reads it: weights and configuration.

    Raises:
        UserError: tensors are missing, or extra: a CLIP with a ResNet has other names.
    """
    _, clip_map = map_of_family(file, "clip")
    if "logit_scale" not in file.weights:
        raise UserError(
            f"{file.path}: missing: logit_scale, the factor of CLIP's scores, which its folder has to have."
        )
    named = {maps()["clip"].theirs(name): value for name, value in clip_map.ours(file.weights).items()}
    weights = {name: value.float().contiguous() for name, value in named.items()}
    weights["logit_scale"] = file.weights["logit_scale"].float()
    rows, width = weights["text_model.embeddings.token_embedding.weight"].shape
    patches = weights["vision_model.embeddings.patch_embedding.weight"]
    text = {
        **_sizes(weights, "text_model", width),
        "vocab_size": rows,
        "max_position_embeddings": len(weights["text_model.embeddings.position_embedding.weight"]),
        "bos_token_id": rows - 2,
        "eos_token_id": rows - 1,
    }
    vision = {
        **_sizes(weights, "vision_model", len(patches)),
        "image_size": clips.clip(file.weights)["image.size"],
        "patch_size": patches.shape[-1],
    }
    joint = {"projection_dim": len(weights["text_projection.weight"]), "text_config": text, "vision_config": vision}
    return weights, {"architectures": ["CLIPModel"], "model_type": "clip", **joint}


def _sizes(weights: dict[str, Tensor], tower: str, width: int) -> dict[str, Any]:
    """What both towers have in a configuration."""
    layers = f"{tower}.encoder.layers"
    return {
        "hidden_size": width,
        "intermediate_size": len(weights[f"{layers}.0.mlp.fc1.weight"]),
        "num_hidden_layers": sum(name.endswith("mlp.fc1.weight") and name.startswith(layers) for name in weights),
        "num_attention_heads": width // HEAD,
        "hidden_act": "quick_gelu",
    }
