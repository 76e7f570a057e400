"""Cells of a network on images: its patches alone, without the class token and the registers; or a refusal."""

import re
from typing import Any

import pytest
import torch
from pydantic import ValidationError

from goalgrid.grid.errors import UserError
from goalgrid.grid.identity import digest
from goalgrid.grid.settings.image_encoders import BackboneSettings
from goalgrid.planning.gpu.untrained import of_features
from goalgrid.retrieval.encoders import pretrained
from goalgrid.retrieval.encoders.image import Backbone
from goalgrid.retrieval.encoders.vision import Vision
from tests.networks import SMALL, TRANSFORMERS

PATCH = {**SMALL, "num_hidden_layers": 0, "patch_size": 16}
SIZED = {**PATCH, "image_size": 32}
SPECIAL: dict[str, tuple[dict[str, Any], int]] = {
    "dinov2_with_registers": ({**SIZED, "num_register_tokens": 4}, 5),
    "dinov3_vit": ({**PATCH, "num_register_tokens": 4}, 5),
    "dinov2": (SIZED, 1),
    "deit": (SIZED, 2),
    "pixio": ({**SIZED, "n_cls_tokens": 3}, 3),
    "radio": (SIZED, 10),
    "vit": (SIZED, 1),
    "clip_vision_model": (SIZED, 1),
    "siglip_vision_model": (SIZED, 0),
    "aimv2_vision_model": (SIZED, 0),
}
"""Networks of patches without a layer, in which nothing passes from a patch to another; and their special tokens."""
REGISTERED = ["dinov2_with_registers", "dinov3_vit"]


def backbone(kind: str, **changes: Any) -> BackboneSettings:
    architecture = {"model_type": kind, **SPECIAL.get(kind, ({}, 0))[0]}
    content = {"weights": "random", "architecture": architecture, "output": "grid", "size": 32}
    return BackboneSettings.model_validate({"encoder": "backbone", **content, **changes})


@pytest.mark.parametrize("kind", [kind for kind in SPECIAL if kind in TRANSFORMERS.CONFIG_MAPPING])
def test_a_cell_sees_its_own_patch_alone(kind: str) -> None:
    """Four patches give four cells, and another patch of a picture changes the cell at its place and no other."""
    vision = Vision(backbone(kind), {}).eval()
    picture = torch.randint(0, 255, (1, 3, 32, 32), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        before = vision(picture)
        assert before.shape == (1, 4, 16)
        for place in range(4):
            row, column = 16 * (place // 2), 16 * (place % 2)
            other = picture.clone()
            other[..., row : row + 16, column : column + 16] = 255 - picture[..., row : row + 16, column : column + 16]
            changed = (vision(other) - before).abs().amax(dim=-1)[0] > 1e-6
            assert changed.tolist() == [place == cell for cell in range(4)]


@pytest.mark.parametrize("kind", REGISTERED)
def test_registers_count_neither_for_a_mean_nor_for_an_estimate(kind: str) -> None:
    settings = backbone(kind, head="none", normalize=False, pooling="mean")
    learning = settings.model_copy(update={"frozen": False})  # frozen, its encoder is the head alone
    encoder = Backbone(learning, (3, settings.size, settings.size), 16, {}).eval()
    pictures = torch.randint(0, 255, (3, 3, 32, 32), dtype=torch.uint8)
    network = encoder.backbone
    assert network is not None
    states = network.network((pictures.float() - network.mean) / network.deviation).last_hidden_state
    assert states.shape[1] == 4 + SPECIAL[kind][1]
    torch.testing.assert_close(encoder(pictures), states[:, -4:].mean(dim=1))
    assert of_features(settings, {})[1] == (4, 16)


@pytest.mark.parametrize("output", ["grid", "pooled"])
def test_networks_whose_cells_cannot_be_told_are_refused(output: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A class token of an unknown name, where cells are asked for and where the mean over them is."""
    monkeypatch.setattr("goalgrid.retrieval.encoders.vision.CLASS_TOKENS", ())
    settings = backbone("vit_msn", architecture={"model_type": "vit_msn", **SIZED}, output=output)
    told = "the grid cells of a vit_msn cannot be determined: for 32 x 32 pixels, its output has shape (5, 16) with"
    with pytest.raises(UserError, match=re.escape(told)):
        Vision(settings, {})


@pytest.mark.parametrize(
    ("kind", "sizes"),
    [
        ("yolos", {**SMALL, "image_size": [32, 32], "patch_size": 16}),
        ("vit_mae", {**SMALL, "image_size": 32, "patch_size": 16}),
        ("dinov3_convnext", {"hidden_sizes": [8, 8, 16, 16], "depths": [1, 1, 1, 1]}),
    ],
)
def test_only_pooled_output_is_had_of_tokens_that_are_no_square(kind: str, sizes: dict[str, Any]) -> None:
    """Tokens behind the patches, patches that are left out, and a first state that is the mean of the others."""
    settings = backbone(kind, architecture={"model_type": kind, **sizes})
    with pytest.raises(
        UserError, match=rf'grid cells of a {kind} cannot be determined: .* Set model.image.output = "pooled"'
    ):
        Vision(settings, {})
    assert Vision(settings.model_copy(update={"output": "pooled"}), {}).width == 16


@pytest.mark.parametrize(("first", "widths", "depths"), [(64, [128], [1]), (16, [16, 24], [2, 2])])
def test_our_random_resnet_is_that_of_transformers_to_the_bit(first: int, widths: list[int], depths: list[int]) -> None:
    sizes = {"embedding_size": first, "hidden_sizes": widths, "depths": depths}
    settings = backbone("resnet", architecture={"model_type": "resnet", "layer_type": "basic", **sizes})
    assert settings.built_here
    ours = pretrained.network(settings, {}, part="vision_model")
    torch.manual_seed(int(digest(settings.architecture)[:8], 16))
    config = TRANSFORMERS.AutoConfig.for_model("resnet", layer_type="basic", **sizes)
    theirs = TRANSFORMERS.AutoModel.from_config(config)
    weights, expected = ours.state_dict(), theirs.state_dict()
    assert list(weights) == list(expected)
    assert all(torch.equal(weights[name], expected[name]) for name in expected)
    pixels = torch.rand(2, 3, 48, 48)
    for network in (ours, theirs):
        network.eval()
    given, oracle = ours(pixels), theirs(pixels)
    assert torch.equal(given.last_hidden_state, oracle.last_hidden_state)
    assert torch.equal(given.pooler_output, oracle.pooler_output)


def test_statistics_are_a_name_or_six_numbers_or_none() -> None:
    pictures = torch.randint(0, 255, (2, 3, 32, 32), dtype=torch.uint8)

    def seen(statistics: Any) -> torch.Tensor:
        ours = Vision(backbone("dinov2", statistics=statistics), {})
        return (pictures.float() - ours.mean) / ours.deviation

    clip = [0.48145466, 0.4578275, 0.40821073, 0.26862954, 0.26130258, 0.27577711]
    torch.testing.assert_close(seen(clip), seen("clip"))
    torch.testing.assert_close(seen("none"), pictures / 255)
    for wrong in ("imagenet2", clip[:5], [*clip[:5], 0.0]):
        with pytest.raises(ValidationError, match="imagenet, clip, half, caffe, none, published, or six numbers"):
            backbone("dinov2", statistics=wrong)


@pytest.mark.parametrize("frozen", [True, False])
def test_a_frozen_network_that_sees_each_view_stays_in_evaluation_while_its_model_trains(frozen: bool) -> None:
    vision = Vision(backbone("vit", frozen=frozen, crops="online"), {}).train()
    assert [module.training for module in vision.modules()] == [not frozen] * len([*vision.modules()])
