"""What of a tower learns: only that changes in training, to the bit; frozen blocks draw no dropout."""

import copy
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from pydantic import ValidationError

from goalgrid.grid.errors import UserError
from goalgrid.grid.identity import canonical
from goalgrid.grid.settings.base import remaining_fields
from goalgrid.grid.settings.image_encoders import BackboneSettings
from goalgrid.grid.settings.model import ModelSettings
from goalgrid.grid.settings.text_encoders import TransformerSettings
from goalgrid.retrieval.model import DualEncoder
from tests.conftest import Goalgrid
from tests.retrieval.test_towers import saved

pytestmark = pytest.mark.gate
BLOCKS = {
    "CLIP": ("encoder.layers", "final_layer_norm", "encoder.layers", "post_layernorm"),
    "SigLIP 2": ("encoder.layers", "final_layer_norm", "encoder.layers", "post_layernorm"),
    "AIMv2": ("encoder.layers", "rms_norm", "encoder.layers", "rms_norm"),
    "MetaCLIP 2": ("encoder.layers", "final_layer_norm", "encoder.layers", "post_layernorm"),
    "TIPSv2": ("encoder.layers", "final_layer_norm", "encoder.layer", "layernorm"),
}
"""By tower: the blocks of its text network and the norm behind them; those of its image network."""


def settings(trains: str, **model: Any) -> ModelSettings:
    image = {"encoder": "backbone", "weights": "a", "output": "projected", "size": 64, "trains": trains}
    text = {"encoder": "transformer", "weights": "a", "output": "projected", "trains": trains}
    return ModelSettings.model_validate({"image": image, "text": text, "dim": 16, **model})


def stepped(model: DualEncoder) -> dict[str, torch.Tensor]:
    """The weights before three steps of training, and the model after them."""
    before = copy.deepcopy(dict(model.named_parameters()))
    learning = [weight for group in model.groups().values() for weight in group]
    optimizer = torch.optim.SGD(learning, lr=0.1)
    images = torch.randint(0, 256, (4, 3, 64, 64), dtype=torch.uint8)
    ids, lengths = torch.tensor([[2, 4, 5, 3]] * 4) + torch.arange(4)[:, None] % 2, torch.full((4,), 4)
    for _ in range(3):
        model.train()
        optimizer.zero_grad()
        image, text = model.embed_images(images), model.embed_texts(ids, lengths)
        assert isinstance(image, torch.Tensor)
        assert isinstance(text, torch.Tensor)
        (image @ torch.randn(16) + text @ torch.randn(16)).sum().backward()
        optimizer.step()
    return before


@pytest.mark.parametrize("name", BLOCKS)
@pytest.mark.parametrize("trains", ["projection", "last 1"])
def test_only_what_learns_changes(name: str, trains: str, tmp_path: Path) -> None:
    """Weights that do not learn keep their bits and have no gradient; a checkpoint holds the others alone."""
    saved(tmp_path, name)
    if trains == "projection" and name == "TIPSv2":
        with pytest.raises(UserError, match="this network has no layer that maps its hidden states to an embedding"):
            DualEncoder(settings(trains), (3, 64, 64), 99, seed=0, places={"a": tmp_path})
        return
    model = DualEncoder(settings(trains), (3, 64, 64), 99, seed=0, places={"a": tmp_path})
    whole = DualEncoder(settings("all"), (3, 64, 64), 99, seed=0, places={"a": tmp_path})
    pictures = torch.randint(0, 256, (2, 3, 64, 64), dtype=torch.uint8)
    assert torch.equal(model.eval().embed_images(pictures), whole.eval().embed_images(pictures)), "step 0"
    before = stepped(model)
    changed = {key for key, weight in model.named_parameters() if not torch.equal(weight, before[key])}
    texts, text_norm, images, image_norm = BLOCKS[name]
    expected = set[str]()
    for side, path, norm in (("text.backbone.", texts, text_norm), ("image.backbone.network.", images, image_norm)):
        ends = tuple(f"{side}{part}." for part in ("projection", "head"))
        last = (f"{side}{path}.1.", f"{side}{norm}.") if trains == "last 1" else ()
        expected |= {key for key in before if key.startswith(ends + last)}
    within = {key for key in changed if ".backbone." in key}
    still = {key for key, weight in model.named_parameters() if ".backbone." in key and not weight.requires_grad}
    assert within <= expected
    assert any(f".{path}.1." in key for key in within for path in (texts, images)) == (trains == "last 1")
    assert still == {key for key in before if ".backbone." in key} - expected
    assert all(dict(model.named_parameters())[key].grad is None for key in still)
    assert not still & model.weights().keys()
    assert expected <= model.weights().keys()
    again = DualEncoder(settings(trains), (3, 64, 64), 99, seed=1, places={"a": tmp_path})
    again.load_weights(model.weights())
    for key, value in model.state_dict().items():
        assert torch.equal(value, again.state_dict()[key]), key


def test_frozen_blocks_are_in_evaluation_and_an_image_backbone_is_held_in_part(tmp_path: Path) -> None:
    saved(tmp_path, "CLIP")
    model = DualEncoder(settings("last 1"), (3, 64, 64), 99, seed=0, places={"a": tmp_path}).train()
    backbone: Any = model.text.backbone
    assert [layer.training for layer in backbone.encoder.layers] == [False, True]
    assert not backbone.embeddings.training
    learning = {name for name, weight in model.named_parameters() if weight.requires_grad}
    model.hold_image_backbone(True)
    assert not any(weight.requires_grad for weight in model.image.backbone.parameters())  # type: ignore[union-attr]
    model.hold_image_backbone(False)
    assert {name for name, weight in model.named_parameters() if weight.requires_grad} == learning


def test_more_blocks_than_there_are_is_an_error(tmp_path: Path) -> None:
    saved(tmp_path, "CLIP")
    with pytest.raises(UserError, match=r"model\.image\.trains = 'last 3': this network has only 2 blocks"):
        DualEncoder(settings("last 3"), (3, 64, 64), 99, seed=0, places={"a": tmp_path})


@pytest.mark.parametrize("kind", [BackboneSettings, TransformerSettings])
def test_none_and_all_are_frozen_true_and_false_with_the_same_id(kind: Any) -> None:
    names = {"weights": "a", "encoder": "backbone" if kind is BackboneSettings else "transformer"}

    def content(**given: Any) -> dict[str, Any]:
        return canonical(kind.model_validate({**names, **given}))

    assert content(trains="none") == content(frozen=True)
    assert content(trains="all") == content(frozen=False)
    assert content(trains="last 2")["trains"] == "last 2"
    assert not content(trains="last 2")["frozen"]
    for wrong in ({"trains": "none", "frozen": False}, {"trains": "last 2", "frozen": True}):
        with pytest.raises(ValidationError, match="contradicts frozen"):
            content(**wrong)
    with pytest.raises(ValidationError, match='needs output = "projected"'):
        content(trains="projection")
    for wrong in ("last 0", "last", "some"):
        with pytest.raises(ValidationError, match="it should be none, projection, last K"):
            content(trains=wrong)
    assert remaining_fields({"frozen": True, "size": 3}, {"trains": "last 2"}) == {"size": 3}


@pytest.mark.slow
def test_a_grid_sweeps_what_learns(goalgrid: Goalgrid, tmp_path: Path) -> None:
    """Over a recipe that is frozen: its id for none is that of the recipe itself."""
    sweep = 'sweep.model.text.trains=["none", "last 1"]'
    grid = tmp_path / "g.toml"
    grid.write_text(
        'name = "g"\ndatasets = ["shapes"]\nrecipes = ["clip-tiny"]\nobjectives = ["infonce"]\nseeds = [0]\n'
    )
    few = ["--set", "train.epochs=1", "--set", "dataset.train_images=128"]
    done = goalgrid("run", str(grid), "--here", "--set", sweep, *few, runs=tmp_path)
    assert done.returncode == 0, done.stderr
    ids = [path.parent.name for path in (tmp_path / "trials").glob("*/done")]
    assert len(ids) == 2
    learnt = {}
    for path in (tmp_path / "trials").glob("*/settings.json"):
        text = json.loads(path.read_text())["model"]["text"]
        learnt[text["frozen"], text["trains"]] = path.parent
    assert {*learnt} == {(True, None), (False, "last 1")}
    size = {key: (path / "best.ckpt").stat().st_size for key, path in learnt.items()}
    assert size[True, None] < size[False, "last 1"]
