"""Published checkpoints: each family's file gives our model the peer's scores; a file that does not fit is named."""

import os
import pickle
from pathlib import Path

import numpy as np
import pytest
import torch

from grid.errors import UserError
from retrieval.model import Vse
from retrieval.published.checkpoint_files import CheckpointFile
from retrieval.published.checkpoint_maps import PublishedModel, maps
from tests.networks import save as save_network
from tests.retrieval.literal_peers import REGIONS, WIDTH, Peer

WORDS = ["<pad>", "<start>", "<end>", "<unk>", "a", "dog", "runs", "over", "grass"]
BERT = "google-bert/bert-base-uncased"
KINDS = {
    "vsepp": ("vsepp", "precomp"),
    "vsepp-resnet": ("vsepp", "resnet"),
    "vse-infinity-bigru": ("vse-infinity", "bigru"),
    "vse-infinity-bert": ("vse-infinity", "bert"),
    "vse-2ad-bigru": ("vse-2ad", "bigru"),
    "vse-2ad-bert": ("vse-2ad", "bert"),
    "rvse": ("rvse", "bigru"),
    "scan": ("scan", "bigru"),
    "bfan": ("bfan", "bigru"),
    "sgr": ("sgraf", "SGR"),
    "saf": ("sgraf", "SAF"),
}
"""Family, and kind of its file, by the name of the map."""


@pytest.fixture(scope="module")
def bert(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_network(tmp_path_factory.mktemp("bert"), "bert")


def read(path: Path, family: str, words: list[str] = WORDS, bert: Path | None = None) -> PublishedModel:
    return PublishedModel.of(CheckpointFile.read(path), family, words, {BERT: bert} if bert else {})


def peer_of(name: str, bert: Path) -> Peer:
    family, kind = KINDS[name]
    return Peer(family, kind, len(WORDS) + (name in ("vse-infinity-bigru", "rvse")), bert)  # with a word for masks


def test_every_map_is_tested() -> None:
    assert {*KINDS, "clip", "x-vlm", "x-vlm-pretrained"} == maps().keys()  # X-VLM: test_xvlm_files.py
    assert all(maps()[name].family == family for name, (family, _) in KINDS.items())


@pytest.mark.parametrize("name", KINDS)
def test_our_model_has_the_peers_scores(name: str, bert: Path, tmp_path: Path) -> None:
    family, kind = KINDS[name]
    peer = peer_of(name, bert)
    path = peer.save(tmp_path / "model_best.pth.tar")
    known = [] if kind == "bert" else WORDS
    found = read(path, family, known, bert)
    assert found.kind == name
    shape = {"precomp": (WIDTH,), "resnet": (3, 64, 64)}.get(kind, (REGIONS, WIDTH))
    masked = name in ("vse-infinity-bigru", "rvse")
    model = Vse(found.settings, shape, len(known) + masked or 1, seed=1, places={BERT: bert})
    model.load_weights(found.weights)
    images = torch.rand(3, *shape, generator=torch.Generator().manual_seed(1))
    if kind == "resnet":
        images = (images * 255).to(torch.uint8)
    captions = [torch.tensor(row) for row in ([1, 4, 5, 6, 2], [1, 4, 8, 2], [1, 5, 2])]
    ids = torch.nn.utils.rnn.pad_sequence(captions, batch_first=True)
    lengths = torch.tensor([len(row) for row in captions])
    with torch.no_grad():
        ours = model.eval().scores(model.embed_images(images), model.embed_texts(ids, lengths))
    torch.testing.assert_close(ours, peer.scores(images, captions), atol=2e-6, rtol=1e-5)
    assert ours.std() > 1e-4


def test_clip_has_the_scores_of_transformers(tmp_path: Path) -> None:
    """A fine-tuned CLIP's state dict; its tokenizer and sizes come from the folder of the CLIP that it began with."""
    import transformers

    folder = save_network(tmp_path / "clip", "clip-read")
    theirs = transformers.CLIPModel.from_pretrained(folder).eval()
    with torch.no_grad():
        for weight in theirs.parameters():
            weight += 0.1 * torch.randn(weight.shape, generator=torch.Generator().manual_seed(0))
    torch.save(theirs.state_dict(), tmp_path / "tuned.pt")
    found = PublishedModel.of(CheckpointFile.read(tmp_path / "tuned.pt"), "clip", (), {"clip": folder})
    model = Vse(found.settings, (3, 32, 32), 1, seed=0, places={"clip": folder}).eval()
    model.load_weights(found.weights)
    images = torch.randint(0, 256, (2, 3, 32, 32), dtype=torch.uint8)
    ids, lengths = torch.tensor([[2, 5, 6, 3], [2, 7, 3, 0]]), torch.tensor([4, 3])
    backbone = model.image.backbone
    with torch.no_grad():
        ours = model.embed_images(images), model.embed_texts(ids, lengths)
        pixels = (images.float() - backbone.mean) / backbone.deviation
        expected = theirs(pixel_values=pixels, input_ids=ids, attention_mask=(ids != 0).long())
    torch.testing.assert_close(ours[0], expected.image_embeds, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(ours[1], expected.text_embeds, rtol=1e-4, atol=1e-5)
    with pytest.raises(UserError, match=r"tuned\.pt is no x-vlm: it looks like CLIP.*Give --as clip"):
        PublishedModel.of(CheckpointFile.read(tmp_path / "tuned.pt"), "x-vlm", (), {})


def test_the_file_says_what_it_is(tmp_path: Path) -> None:
    number = np.float64(0.5)  # older versions of the peers' code save numbers of NumPy among their options
    found = read(Peer("vsepp", "precomp", len(WORDS)).save(tmp_path / "v.tar", margin=number), "vsepp")
    assert (found.dataset, found.said) == ("flickr8k", {"epoch": 3, "its validation rsum": 412.34})


def test_a_file_of_another_family_is_recognised(tmp_path: Path) -> None:
    scan = Peer("scan", "bigru", len(WORDS)).save(tmp_path / "scan.tar")
    rvse = Peer("rvse", "bigru", len(WORDS)).save(tmp_path / "rvse.tar")
    with pytest.raises(UserError, match=r"scan\.tar is no vsepp: it looks like SCAN .* Give --as scan"):
        read(scan, "vsepp")
    with pytest.raises(UserError, match=r"scan\.tar is no bfan: it looks like SCAN"):
        read(scan, "bfan")
    with pytest.raises(UserError, match=r"rvse\.tar is no vse-infinity: it looks like RVSE\+\+"):
        read(rvse, "vse-infinity")
    with pytest.raises(UserError, match=r"unknown family 'vsep' in --as\. Did you mean 'vsepp'\?"):
        read(scan, "vsep")


class Evil:
    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.mkdir, ("evil",)


def test_a_file_that_does_not_fit_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    whole = Peer("vsepp", "precomp", len(WORDS)).save(Path("whole"))

    def changed(name: str, **weights: torch.Tensor | None) -> Path:
        content = torch.load(whole, weights_only=False)
        for key, value in weights.items():
            if value is None:
                del content["model"][0][key.replace("_", ".")]
            else:
                content["model"][0][key.replace("_", ".")] = value
        torch.save(content, name)
        return Path(name)

    cases = {
        changed("lacks", fc_bias=None): r"lacks as vsepp: missing: img_enc\.fc\.bias",
        changed("more", gate_weight=torch.ones(2)): r"extra: img_enc\.gate\.weight",
        changed(
            "wide", fc_bias=torch.ones(3)
        ): r"img_enc\.fc\.bias is \(3,\) in the file and \(16,\) by its other sizes",
        Peer("vsepp", "precomp", len(WORDS)).save(
            Path("order"), measure="order"
        ): r"measure = 'order', known is 'cosine'",
        Peer("vsepp", "precomp", 7).save(Path("seven")): r"the vocabulary has 9 words, and seven 7 \(txt_enc\.embed",
        Path("none"): r"none cannot be read: No such file",
    }
    Path("half").write_bytes(whole.read_bytes()[:2000])
    cases[Path("half")] = r"half of 2,000 bytes is damaged or half downloaded; fetch it again"
    Path("text").write_text("this is no checkpoint")
    cases[Path("text")] = r"text of 21 bytes is damaged"
    Path("old").write_bytes(pickle.dumps({"model": Evil()}))
    torch.save({"model": [], "opt": Evil()}, "evil.pth")
    cases |= {Path("evil.pth"): r"its pickle names posix\.mkdir, which is no part of a checkpoint and is not run"}
    torch.save({"epoch": 1}, "empty")
    cases[Path("empty")] = r"empty holds no weights"
    for path, said in cases.items():
        with pytest.raises(UserError, match=said):
            read(path, "vsepp")
    with pytest.raises(UserError, match="old"):
        read(Path("old"), "vsepp")
    assert not Path("evil").exists()
    with pytest.raises(UserError, match=r"which vocabulary\? whole knows words by their index"):
        read(whole, "vsepp", [])
