"""The feature cache: what the backbone gives live, computed once, cut off anywhere, shared by everyone."""

import hashlib
import io
import json
import os
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from goalgrid.grid import catalog
from goalgrid.grid.errors import UserError
from goalgrid.grid.settings.image_encoders import BackboneSettings
from goalgrid.retrieval import features
from goalgrid.retrieval.data import opening
from goalgrid.retrieval.data.file_slice import FileSlice
from goalgrid.retrieval.data.images import ImageFiles
from goalgrid.retrieval.encoders.vision import Vision
from goalgrid.retrieval.features import Bank, ImageSource
from goalgrid.retrieval.growing_array import GrowingArray
from goalgrid.retrieval.splits.pairs import Pairs
from tests.fork_server import client
from tests.networks import save

CPU = torch.device("cpu")


def backbone(**changes: object) -> BackboneSettings:
    """The small recipe's frozen ResNet, with these settings changed."""
    content = catalog.recipe("vsepp-r152-tiny").model.image.model_dump() | {"size": 32, "crops": 1, **changes}
    return BackboneSettings.model_validate(content)


def source(
    cache: Path, image: BackboneSettings, places: dict[str, Path] | None = None, pairs: Pairs | None = None
) -> ImageSource:
    """The embedded scenes under this backbone, or these pairs."""
    pairs = pairs or opening.load("shapes", None, image.view, keep=False)
    return ImageSource("shapes", cache, image, places or {}, pairs, "shapes")


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache that holds the plain features; tests read it."""
    folder = tmp_path_factory.mktemp("cache")
    source(folder, backbone()).load(CPU)
    return folder


@pytest.mark.parametrize("output", ["pooled", "grid"])
def test_features_are_what_the_backbone_gives(output: str, cache: Path) -> None:
    image = backbone(output=output)
    ours = source(cache, image)
    rows = np.array([5, 0, 5, 249])
    live = Vision(image, {}).eval()(ours.pairs.val.images.gather(rows)).detach()
    cached = ours.load(CPU).val.images.gather(rows)
    assert cached.dtype == torch.float16
    assert cached.shape == live.shape
    assert torch.allclose(cached.float(), live, rtol=2e-3, atol=1e-3)


def test_they_are_memory_mapped(cache: Path) -> None:
    bank = source(cache, backbone()).load(CPU).train.images
    assert isinstance(bank, Bank)
    assert isinstance(bank.array, np.memmap)


def test_captions_and_images_stay_as_they_are(cache: Path) -> None:
    ours = source(cache, backbone())
    loaded = ours.load(CPU)
    assert loaded.test.captions == ours.pairs.test.captions
    assert len(loaded.test.images) == len(ours.pairs.test.images)


def test_the_key_is_of_all_that_decides_features_and_of_nothing_else(tmp_path: Path) -> None:
    places = {"a": save(tmp_path / "a", "resnet"), "b": save(tmp_path / "b", "resnet")}
    pairs = source(tmp_path, backbone()).pairs

    def key(places: dict[str, Path] | None = None, **changes: object) -> str:
        return source(tmp_path, backbone(**changes), places, pairs).key

    variants = [
        key(),
        key(size=48),
        key(framing="square"),
        key(output="grid"),
        key(crops=2),
        key(crops=2, flip=False),
        key(statistics="half"),
        key(statistics=[0.5, 0.4, 0.3, 1, 1, 1]),
        key(margin=1),
        key(filter="bicubic"),
        key(crops=2, margin=1),
        key(crops=2, filter="bicubic"),
        key(places, weights="a", architecture={}),
        key(places, weights="b", architecture={}),
    ]
    assert len(set(variants)) == len(variants)
    assert {key(pooling="max", head="mlp", normalize=False, drop=0.1), key(flip=False)} == {variants[0]}
    again = key({"copy": places["a"]}, weights="copy", architecture={})
    assert again == variants[-2], "the content counts, not the name"


@pytest.mark.parametrize("crops", [1, 2])
def test_keys_of_views_without_margin_and_filter_are_as_before_these_were_settings(crops: int, tmp_path: Path) -> None:
    """The key that the program of c608b168 made, literally: with COCO's features, 20 GPU hours hang on it."""
    image = backbone(crops=crops)
    ours = source(tmp_path, image)
    view = {"size": 32, "framing": "centre-crop", "augmentation": "resized-crop", "flip": True, "resampling": 2}
    content = {
        "images": "shapes",
        "weights": hashlib.sha256(as_json(image.architecture)).hexdigest()[:16],
        "view": [32, "centre-crop"] if crops == 1 else view,
        "crops": crops,
        "network": ["pooled", "imagenet"],
    }
    assert ours.key == hashlib.sha256(as_json(content)).hexdigest()
    assert source(tmp_path, backbone(crops=crops, filter="bilinear"), pairs=ours.pairs).key == ours.key


def as_json(content: object) -> bytes:
    return json.dumps(content, sort_keys=True, separators=(",", ":")).encode()


def test_a_bank_gives_each_look_one_of_its_crops(tmp_path: Path) -> None:
    image = backbone(crops=3)
    ours = source(tmp_path, image)
    bank = ours.load(CPU).train.images
    assert len(bank) == 1000
    rows = np.zeros(300, dtype=int) + 7
    looks = bank.gather(rows, 1)
    assert len(looks.unique(dim=0)) == 3
    assert looks.equal(bank.gather(rows, 1))
    assert not looks.equal(bank.gather(rows, 2))
    assert looks[3:5].equal(bank.gather(rows, 1, slice(3, 5)))
    np.save(tmp_path / "two.npy", bank.array[:2000])
    assert len(Bank(tmp_path / "two.npy", 2).gather(rows, 1).unique(dim=0)) == 2
    first = Vision(image, {}).eval()(ours.pairs.train.images.gather(np.arange(256), 0)).detach()
    assert torch.allclose(bank.gather(np.arange(256)).float(), first, rtol=2e-3, atol=1e-3)


@pytest.mark.parametrize("cut", [5, 60_000])
def test_what_was_cut_off_goes_on_and_ends_the_same(
    cut: int, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed after its second block, with `cut` bytes of a third or of the header on the disk."""
    ours, calls = source(tmp_path, backbone()), []
    whole = features._features

    def dies(*arguments: object) -> np.ndarray:
        calls.append(1)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return whole(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(features, "_features", dies)
    with pytest.raises(KeyboardInterrupt):
        ours.load(CPU)
    part = ours.folder / "train.npy.part"
    left = part.read_bytes()
    part.write_bytes(left + bytes(cut) if cut > 5 else left[:cut])
    told: list[int] = []
    calls[:] = [1] * 9
    ours.fill(CPU, told.append)
    loaded = ours.load(CPU)
    expected = source(cache, backbone()).load(CPU)
    for split in ("train", "val", "test"):
        one, other = getattr(loaded, split).images, getattr(expected, split).images
        assert (one.array == other.array).all()
    assert sum(told) == ours.views() == 1750
    assert len(calls) - 9 == (7 if cut == 5 else 5), "blocks that stand there are not computed again"


def test_a_file_whose_last_block_was_written_before_a_kill_is_finished(cache: Path, tmp_path: Path) -> None:
    ours = source(tmp_path, backbone())
    shutil.copytree(source(cache, backbone()).folder, folder := ours.folder, copy_function=shutil.copy2)
    (folder / "val.npy").rename(folder / "val.npy.part")
    (folder / "val.npy.blocks").write_text("".join(f"{place}\n" for place in range(len(ours.blocks("val")))))
    assert len(ours.load(CPU).val.images) == 250


def test_files_are_decoded_once_for_all_crops_and_give_the_views_of_each(tmp_path: Path) -> None:
    files = [tmp_path / f"{place}.png" for place in range(3)]
    for place, file in enumerate(files):
        noise = np.random.default_rng(place).integers(0, 255, (40, 50, 3), dtype=np.uint8)
        Image.fromarray(noise).save(file)
    ours, rows, decoded = ImageFiles([*map(FileSlice, files)], backbone(crops=4).view), np.array([2, 0, 1]), list[int]()
    whole = [ours.gather(rows, draw) for draw in (3, 5, 8, 9)]
    decode = ours._decode
    ours._decode = lambda views, row, seeds: (decoded.append(row), decode(views, row, seeds))  # type: ignore[method-assign]
    assert all(one.equal(other) for one, other in zip(ours.looks(rows, [3, 5, 8, 9]), whole, strict=True))
    assert sorted(decoded) == [0, 1, 2]


@pytest.mark.gate
def test_two_processes_compute_them_once(tmp_path: Path) -> None:
    script = (
        "import torch; from pathlib import Path; from tests.retrieval.test_features import *\n"
        f"told = []; source(Path({str(tmp_path)!r}), backbone()).fill(CPU, told.append); print(sum(told))"
    )
    both = [client.Popen([sys.executable, "-c", script], stdout=client.PIPE) for _ in range(2)]
    views = sorted(int(process.communicate(timeout=120)[0]) for process in both)
    assert views == [0, 1750]


def test_features_that_overflow_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Vision, "forward", lambda self, pixels: torch.full((len(pixels), 2), 1e6))
    with pytest.raises(UserError, match="overflow float16"):
        source(tmp_path, backbone()).load(CPU)


def test_a_cache_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="features cannot be written to"):
        source(tmp_path / "file", backbone()).load(CPU)


def test_damaged_features_are_computed_anew(cache: Path, tmp_path: Path) -> None:
    """A flipped bit, features of nan, too few rows, no features at all: only the damaged file is computed."""
    ours = source(tmp_path, backbone())
    shutil.copytree(source(cache, backbone()).folder, folder := ours.folder, copy_function=shutil.copy2)
    whole = {name: (folder / f"{name}.npy").read_bytes() for name in ours.pairs.splits}
    flipped = bytearray(whole["val"])
    flipped[-1000] ^= 1
    few = io.BytesIO()
    np.save(few, np.load(folder / "val.npy")[:-1])
    for content in (bytes(flipped), whole["val"][:-1], b"", few.getvalue()):
        (folder / "val.npy").write_bytes(content)
        assert ours.wanting() == [folder / "val.npy"]
        told: list[int] = []
        ours.fill(CPU, told.append)
        assert len(ours.load(CPU).val.images) == 250
        assert (folder / "val.npy").read_bytes() == whole["val"]
        assert (folder / "val.corrupt").read_bytes() == content
        assert sum(told[1:]) == 250


def test_features_are_verified_once(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ours, opened = source(cache, backbone()), list[str]()
    ours.load(CPU)
    monkeypatch.setattr(features, "_whole", lambda path, rows: opened.append(path.name) or True)
    assert ours.wanting() == []
    assert opened == []
    (ours.folder / "val.npy").touch()
    assert ours.wanting() == []
    assert opened == ["val.npy"]


@pytest.mark.parametrize("rows", [[2, 3, 1], [5]])
def test_a_growing_array_is_a_plain_npy(tmp_path: Path, rows: list[int]) -> None:
    values = np.arange(sum(rows) * 4, dtype=np.float16).reshape(-1, 2, 2)
    growing = GrowingArray(tmp_path / "x.npy", rows)
    assert growing.missing == set(range(len(rows)))
    for place, block in reversed([*enumerate(np.split(values, np.cumsum(rows)[:-1]))]):  # in any order
        growing.write(place, block)
    assert not (tmp_path / "x.npy").exists()
    growing.finish()
    assert (np.load(tmp_path / "x.npy") == values).all()


@pytest.mark.parametrize(("rows", "whole"), [(0, 0), (1, 0), (2, 1), (4, 1), (5, 2)])
def test_a_growing_array_that_was_cut_off_goes_on_with_the_blocks_that_it_lacks(
    rows: int, whole: int, tmp_path: Path
) -> None:
    """Wherever a kill stops the writing: here after so many rows and a byte of the next."""
    values = np.arange(12, dtype=np.float16).reshape(6, 2)
    blocks = np.split(values, [2, 5])
    growing = GrowingArray(tmp_path / "x.npy", [2, 3, 1])
    for place, block in enumerate(blocks):
        growing.write(place, block)
    with growing.journal.open("a") as journal:
        journal.write("2")  # torn
    header = growing.part.stat().st_size - values.nbytes
    os.truncate(growing.part, header + rows * values[0].nbytes + 1)
    growing = GrowingArray(tmp_path / "x.npy", [2, 3, 1])
    assert growing.missing == set(range(whole, 3))
    for place in range(whole, len(blocks)):
        growing.write(place, blocks[place])
    growing.finish()
    assert (np.load(tmp_path / "x.npy") == values).all()
