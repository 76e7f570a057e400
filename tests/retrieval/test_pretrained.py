"""Pretrained weights that cannot be used: one message with folder, file and remedy; no code of theirs runs."""

import json
import pickle
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from goalgrid.grid.errors import UserError
from goalgrid.grid.settings.image_encoders import BackboneSettings
from goalgrid.grid.settings.text_encoders import TransformerSettings
from goalgrid.retrieval.encoders import pretrained
from goalgrid.retrieval.encoders.vision import Vision
from tests.conftest import Goalgrid
from tests.networks import save
from tests.retrieval.literal_peers import ButdResnet

SETTINGS = TransformerSettings(encoder="transformer", weights="some/bert")


def cut(folder: Path) -> None:
    file = folder / "model.safetensors"
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])


def emptied(folder: Path) -> None:
    (folder / "model.safetensors").write_bytes(b"")


def configured(**changes: object) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        file = folder / "config.json"
        file.write_text(json.dumps({**json.loads(file.read_text()), **changes}))

    return change


class Evil:
    def __reduce__(self) -> tuple[object, tuple[Path]]:
        return Path.touch, (Path("evil"),)


def pickled(folder: Path) -> None:
    (folder / "model.safetensors").unlink()
    torch.save({"embeddings": Evil()}, folder / "pytorch_model.bin", pickle_module=pickle)


def with_code(folder: Path) -> None:
    (folder / "own.py").write_text("import pathlib; pathlib.Path('evil').touch()")
    auto = {"AutoConfig": "own.Config", "AutoModel": "own.Model"}
    configured(auto_map=auto, model_type="own")(folder)


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (cut, r"incomplete metadata, file not fully covered\. Download these files again"),
        (emptied, r"header too small\. Download these files again"),
        (
            configured(num_hidden_layers=2),
            r"\d+ tensors described by config\.json are not in the weights, e\.g\. encoder",
        ),
        (configured(intermediate_size=48), "mismatch"),
        (pickled, "a file contains code in addition to weights, which is not run"),
        (with_code, "they need custom code, which is not run. Use a network"),
    ],
    ids=["half", "empty", "more layers", "other sizes", "pickle", "code"],
)
def test_weights_that_cannot_be_used_are_one_message(
    damage: Callable[[Path], None], reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = save(tmp_path / "bert", "bert")
    monkeypatch.chdir(tmp_path)
    damage(folder)
    with pytest.raises(UserError, match=rf"weights 'some/bert' cannot be loaded from .*bert: .*{reason}"):
        pretrained.network(SETTINGS, {"some/bert": folder}, part="text_model")
    assert not Path("evil").exists()


def test_a_damaged_tokenizer_is_one_message(tmp_path: Path) -> None:
    folder = save(tmp_path / "bert", "bert")
    for file in ("tokenizer.json", "tokenizer_config.json"):
        if (folder / file).exists():
            (folder / file).write_text("{")
    with pytest.raises(UserError, match=r"the tokenizer of weights 'some/bert' cannot be loaded from .*Download these"):
        pretrained.tokenizer(SETTINGS, {"some/bert": folder})


def test_the_converted_backbone_of_butd_computes_what_theirs_does(goalgrid: Goalgrid, tmp_path: Path) -> None:
    torch.manual_seed(0)
    theirs, pictures = ButdResnet().eval(), torch.randint(0, 255, (2, 3, 96, 96), dtype=torch.uint8)
    for part in theirs.modules():
        if isinstance(part, torch.nn.BatchNorm2d):
            part.running_mean.normal_()
            part.running_var.uniform_(0.5, 2)
    file, folder = tmp_path / "updown.pth", tmp_path / "butd"
    torch.save({"base": theirs.base.state_dict(), "top": theirs.top.state_dict()}, file)
    said = goalgrid("data", "backbone", str(file), str(folder), runs=tmp_path)
    assert f"--weights butd/resnet-101={folder}" in said.stdout
    content = {"encoder": "backbone", "weights": "butd/resnet-101", "output": "grid", "statistics": "caffe", "size": 96}
    ours = Vision(BackboneSettings.model_validate(content), {"butd/resnet-101": folder})
    with torch.no_grad():
        expected = theirs(pictures)
        torch.testing.assert_close(ours(pictures), expected, atol=1e-5 * float(expected.abs().max()), rtol=1e-4)
    again = goalgrid("data", "backbone", str(file), str(folder), runs=tmp_path)
    assert (again.returncode, "butd holds a network already, there is config.json" in again.stderr) == (2, True)
    torch.save({"base": theirs.base.state_dict()}, file)
    wrong = goalgrid("data", "backbone", str(file), str(tmp_path / "other"), runs=tmp_path)
    assert wrong.returncode == 2
    assert f"{file} is not the backbone of BUTD's detector: it lacks layers. VSE-infinity's original" in wrong.stderr
    assert not (tmp_path / "other").exists()
