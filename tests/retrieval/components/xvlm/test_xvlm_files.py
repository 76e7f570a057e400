"""X-VLM's checkpoint files: every tensor is used or dropped on purpose, and tables are resized as published."""

import os
import re
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.interpolate import RectBivariateSpline
from torch import Tensor

from goalgrid.grid.errors import UserError
from goalgrid.grid.expansion import expand, trials_of
from goalgrid.grid.store.home import Home
from goalgrid.retrieval.components.xvlm.network import Xvlm
from goalgrid.retrieval.components.xvlm.swin import resized
from goalgrid.retrieval.published.checkpoint_files import CheckpointFile
from goalgrid.retrieval.published.published_model import PublishedModel, check_whole
from goalgrid.runners.training.machine import Machine
from goalgrid.runners.trial.lease import new_attempt
from goalgrid.runners.trial.run import TrialRun
from goalgrid.runners.trial.stopping import Stop
from tests.conftest import checked
from tests.retrieval.components.xvlm import xvlm_files
from tests.retrieval.literal_peers import Peer

WORDS = 9
DROPPED = r"relative_position_index|attn_mask|position_ids|text_encoder\.cls|bbox_head"


def saved(path: Path, pretrained: bool = False, window: int = 2) -> tuple[Path, dict[str, Tensor]]:
    weights = xvlm_files.tensors(pretrained=pretrained, words=WORDS, window=window)
    return xvlm_files.save(path, weights), weights


def ours(theirs: str) -> str:
    """Our name of a tensor of theirs, layer by layer."""
    name = theirs.replace("text_encoder.bert.", "text_encoder.").replace("vision_encoder.", "image.backbone.")
    if found := re.match(r"text_encoder\.encoder\.layer\.(\d+)\.", name):
        layer = int(found[1])
        place = f"text.backbone.layers.{layer}." if layer < 6 else f"fusion.layers.{layer - 6}."
        return place + name[found.end() :]
    others = {
        "text_encoder.": "text.backbone.",
        "vision_proj.": "image.project.",
        "text_proj.": "text.project.",
        "itm_head.": "fusion.head.",
        "temp": "fusion.temperature",
    }
    start = next((start for start in others if name.startswith(start)), "")
    return others.get(start, "") + name[len(start) :]


@pytest.mark.parametrize("pretrained", [False, True])
def test_every_tensor_is_used_or_dropped_on_purpose(pretrained: bool, tmp_path: Path) -> None:
    path, theirs = saved(tmp_path / "x.th", pretrained)
    found = PublishedModel.of(CheckpointFile.read(path), "x-vlm", (), {})
    assert found.map.name == ("x-vlm-pretrained" if pretrained else "x-vlm")
    used = {name: value for name, value in theirs.items() if not re.search(DROPPED, name)}
    assert {ours(name) for name in used} == found.weights.keys()
    assert all(torch.equal(found.weights[ours(name)], value) for name, value in used.items())
    model = Xvlm(found.settings, (3, 64, 64), WORDS, seed=0)
    model.load_weights(found.weights)
    assert model.state_dict().keys() == found.weights.keys()
    check_whole(path, found.settings)


def test_a_model_pre_trained_at_224_pixels_sees_384(tmp_path: Path) -> None:
    path, theirs = saved(tmp_path / "x.th", pretrained=True, window=7)
    found = PublishedModel.of(CheckpointFile.read(path), "x-vlm", (), {})
    assert (found.settings.image.view.size, found.settings.image.window) == (384, 12)  # type: ignore[union-attr]
    name = "layers.2.blocks.1.attn.relative_position_bias_table"
    table, before = found.weights[f"image.backbone.{name}"], theirs[f"vision_encoder.{name}"]
    places = [1, 2.241, 3.780, 5.690, 8.060, 11.0]
    places = [*(-place for place in reversed(places)), 0.0, *places]
    for head in range(4):
        spline = RectBivariateSpline(places, places, before[:, head].double().numpy().reshape(13, 13))
        expected = spline(np.arange(-11, 12), np.arange(-11, 12))
        np.testing.assert_allclose(table[:, head].reshape(23, 23), expected, atol=5e-3)
    assert table.reshape(23, 23, 4)[11, 11].tolist() == pytest.approx(before.reshape(13, 13, 4)[6, 6].tolist())
    assert resized(before, 529).shape == (529, 4)
    assert resized(before, 9) is before  # smaller windows have no published rule


class Evil:
    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.mkdir, ("evil",)


def test_a_file_that_does_not_fit_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    whole, weights = saved(tmp_path / "whole.th")
    settings = PublishedModel.of(CheckpointFile.read(whole), "x-vlm", (), {}).settings
    lacking = {name: value for name, value in weights.items() if not name.startswith("itm_head.3")}
    wide = {**weights, "text_proj.weight": torch.ones(7, 12), "text_proj.bias": torch.ones(7)}
    cases = {
        xvlm_files.save(tmp_path / "lacks", lacking): r"is not a known x-vlm checkpoint .*missing: itm_head\.3",
        xvlm_files.save(tmp_path / "more", {**weights, "gate.weight": torch.ones(2)}): r"extra: gate\.weight",
        xvlm_files.save(tmp_path / "wide", wide): r"text_proj\.weight is \(7, 12\) in the file and \(6, 12\)",
        Peer("scan", "bigru", WORDS).save(tmp_path / "scan"): r"is not x-vlm: it looks like SCAN .*Give --as scan",
        tmp_path / "none": r"none cannot be read: No such file",
    }
    (tmp_path / "half").write_bytes(whole.read_bytes()[:20_000])
    cases[tmp_path / "half"] = r"half of 20,000 bytes is damaged or half downloaded; fetch it again"
    torch.save({"model": weights, "config": Evil()}, tmp_path / "evil")
    cases[tmp_path / "evil"] = r"its pickle names posix\.mkdir, which does not belong in a checkpoint; it was not run"
    for path, said in cases.items():
        with pytest.raises(UserError, match=f"(?s){said}"):
            PublishedModel.of(CheckpointFile.read(path), "x-vlm", (), {})
        with pytest.raises(UserError, match=f"(?s){said}"):
            check_whole(path, settings)
    assert not Path("evil_made").exists()
    assert not (tmp_path / "evil").is_dir()
    smaller = settings.model_copy(update={"dim": 4})
    with pytest.raises(UserError, match=r"vision_proj\.weight is \(6, 64\) in the file and \(4, 64\) in the recipe"):
        check_whole(whole, smaller)


def test_a_trial_finds_the_file_that_its_whole_model_begins_with_and_gives_its_weights(tmp_path: Path) -> None:
    path, theirs = saved(tmp_path / "x.th")
    image = {"width": 8, "depths": [1, 1, 2, 1], "heads": [1, 2, 4, 8], "window": 2, "size": 64}
    small = {"extends": "xvlm-zero-shot", "model": {"dim": 6, "image": image, "text": {"width": 12, "hidden": 20}}}
    axes = {"datasets": "shapes", "recipes": "small", "objectives": "triplet-hn", "seeds": 0}
    settings = trials_of(expand(checked({"name": "xv", **axes, "recipe": {"small": small}})))[0].settings
    home, machine = Home(tmp_path / "runs"), Machine(weights=(("x-vlm", str(path)),))
    with new_attempt(home.trial("t"), Stop()) as hold:
        published = TrialRun(settings, home.trial("t"), hold, lambda event: None, machine).published()
        assert published is not None
        weights = published(Xvlm(settings.model, (3, 64, 64), WORDS, seed=0))
    assert weights["fusion.head.0.weight"].equal(theirs["itm_head.0.weight"])
