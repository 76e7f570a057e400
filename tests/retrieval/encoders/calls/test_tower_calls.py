"""What a plan says of towers whose weights are here: how they are called, what differs, and which cannot be called."""

import json
from pathlib import Path
from typing import Any

import pytest

from goalgrid.grid.errors import UserError
from goalgrid.grid.settings import DatasetSettings
from goalgrid.grid.settings.model import ModelSettings
from goalgrid.retrieval.encoders.calls.kinds import REFUSED
from goalgrid.retrieval.encoders.calls.tower_calls import tower_calls
from tests.conftest import Goalgrid
from tests.networks import WORDS, save

pytestmark = pytest.mark.gate
DATA = DatasetSettings(name="shapes", protocol="shapes-test", max_words=60)
PROCESSOR = {
    "size": {"shortest_edge": 36},
    "do_center_crop": True,
    "crop_size": {"height": 32, "width": 32},
    "resample": 3,
    "image_mean": [0.48145466, 0.4578275, 0.40821073],
    "image_std": [0.26862954, 0.26130258, 0.27577711],
}


@pytest.fixture(scope="module")
def clip(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = save(tmp_path_factory.mktemp("clip"), "clip-read", words=[*WORDS, "circle", "square", "large", "small"])
    (folder / "preprocessor_config.json").write_text(json.dumps(PROCESSOR))
    return folder


def lines(folder: Path, image: dict[str, Any], text: dict[str, Any]) -> list[str]:
    image = {"encoder": "backbone", "weights": "a/clip", "output": "projected", "size": 32} | image
    text = {"encoder": "transformer", "weights": "a/clip", "output": "projected"} | text
    model = ModelSettings.model_validate({"image": image, "text": text, "dim": 16})
    return [line for call in tower_calls(DATA, model, {"a/clip": folder}) for line in call.lines()]


def test_the_call_is_told_with_what_differs_and_the_line_to_write(clip: Path) -> None:
    assert lines(clip, {"framing": "square", "statistics": "half", "size": 64}, {"prompt": "a"}) == [
        "a/clip, pictures: 64 pixels, square, bicubic, statistics half",
        "a/clip is not called as published: size 64, published 32; framing square, published centre-crop; statistics "
        'half, published clip. To call it as published, write below [set]: "model.image.call" = "published", '
        '"model.image.size" = 32 (changes trial ids)',
        "a/clip, captions: cut at 60 tokens, mask, after 'a ', projected",
        "a/clip is not called as published: captions cut at 60 tokens, published 77; prompt 'a ', published ''. To "
        'call it as published, write below [set]: "model.text.call" = "published" (changes trial ids)',
    ]
    assert lines(clip, {"call": "published"}, {"call": "published", "prompt": "a photo of "}) == [
        "a/clip, pictures: 32 pixels, centre-crop with margin 1.125, bicubic, statistics clip",
        "a/clip, captions: cut at 77 tokens, mask, after 'a photo of ', projected",
    ]
    same = {"framing": "centre-crop", "margin": 1.125, "filter": "bicubic", "statistics": "clip"}
    assert len(lines(clip, same, {"max_words": 77})) == 3, "as published, but for the data set's max_words"


def test_networks_that_are_not_here_are_not_told(tmp_path: Path) -> None:
    assert lines(tmp_path, {"call": "published"}, {}) == []


@pytest.mark.parametrize(("side", "kind"), [(side, kind) for side, kinds in REFUSED.items() for kind in kinds])
def test_kinds_that_cannot_be_called_are_refused_by_name(side: str, kind: str, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"model_type": kind}))
    chosen = {"image": ({}, {"weights": "b"}), "text": ({"weights": "b"}, {})}[side]
    with pytest.raises(UserError, match=f"weights 'a/clip' are of the kind '{kind}', which cannot be called: .*Take"):
        lines(tmp_path, *chosen)


def test_networks_of_other_libraries_and_with_code_of_their_own_are_refused(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "jina_clip", "auto_map": {"AutoModel": "a.B"}}))
    with pytest.raises(UserError, match="of the kind 'jina_clip', which cannot be called: it needs code of its own"):
        lines(tmp_path, {}, {})
    (tmp_path / "config.json").rename(tmp_path / "open_clip_config.json")
    with pytest.raises(UserError, match="is in the form of open_clip, which is not read"):
        lines(tmp_path, {}, {})


def test_a_trial_is_planned_and_trained_as_published_and_its_record_says_how(
    goalgrid: Goalgrid, clip: Path, tmp_path: Path
) -> None:
    grid = tmp_path / "g.toml"
    grid.write_text(
        f"""name = "g"
datasets = ["shapes"]
recipes = ["mine"]
objectives = ["infonce"]
seeds = [0]
weights."a/clip" = "{clip}"
recipe.mine = {{ extends = "clip-vit-b32" }}
[set]
"train.epochs" = 1
"model.dim" = 16
"model.image.weights" = "a/clip"
"model.image.filter" = "bilinear"
"model.image.call" = "published"
"model.image.size" = 32
"model.text.weights" = "a/clip"
"model.text.call" = "published"
"""
    )
    expected = {
        "image": "a/clip: 32 pixels, centre-crop with margin 1.125, bilinear, statistics clip",
        "text": "a/clip: cut at 77 tokens, mask, projected",
    }
    planned = goalgrid("plan", str(grid), runs=tmp_path / "runs")
    assert "calls      a/clip, pictures: 32 pixels, centre-crop with margin 1.125, bilinear" in planned.stdout
    done = goalgrid("run", str(grid), "--here", runs=tmp_path / "runs")
    assert done.returncode == 0, done.stderr
    (record,) = (tmp_path / "runs" / "trials").glob("*/record.parquet")
    import pyarrow.parquet as pq

    row = pq.read_table(record).to_pylist()[0]
    assert json.loads(row["environment"])["calls"] == expected
    image = json.loads(row["settings"])["model"]["image"]
    assert [image[name] for name in ("framing", "margin", "filter", "statistics")] == [
        "published", "published", "bilinear", "published"
    ]  # fmt: skip
