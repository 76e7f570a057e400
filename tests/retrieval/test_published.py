"""Published checkpoints: each family's file gives our model the peer's scores; a file that does not fit is named."""

import os
import pickle
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from goalgrid.grid.errors import UserError
from goalgrid.grid.settings.image_views import Resampling, View
from goalgrid.retrieval.model import DualEncoder
from goalgrid.retrieval.published.checkpoint_files import CheckpointFile
from goalgrid.retrieval.published.checkpoint_maps import maps
from goalgrid.retrieval.published.published_model import PublishedModel
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
    others = {"clip", "clip-openai", "x-vlm", "x-vlm-pretrained"}  # X-VLM: test_xvlm_files.py
    families = {mapping.name: mapping.family for mapping in maps()}
    assert {*KINDS, *others} == families.keys()
    assert all(families[name] == family for name, (family, _) in KINDS.items())


@pytest.mark.parametrize("name", KINDS)
def test_our_model_has_the_peers_scores(name: str, bert: Path, tmp_path: Path) -> None:
    family, kind = KINDS[name]
    peer = peer_of(name, bert)
    path = peer.save(tmp_path / "model_best.pth.tar")
    known = [] if kind == "bert" else WORDS
    found = read(path, family, known, bert)
    assert found.map.name == name
    shape = {"precomp": (WIDTH,), "resnet": (3, 64, 64)}.get(kind, (REGIONS, WIDTH))
    masked = name in ("vse-infinity-bigru", "rvse")
    model = DualEncoder(found.settings, shape, len(known) + masked or 1, seed=1, places={BERT: bert})
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
    model = DualEncoder(found.settings, (3, 32, 32), 1, seed=0, places={"clip": folder}).eval()
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
    larger = save_network(tmp_path / "larger", "clip-read", size=64)
    with pytest.raises(
        UserError, match=r"tuned\.pt has other sizes than the weights 'clip', from which .* cannot process 32"
    ):
        PublishedModel.of(CheckpointFile.read(tmp_path / "tuned.pt"), "clip", (), {"clip": larger})
    with pytest.raises(UserError, match=r"tuned\.pt is not x-vlm: it looks like CLIP.*Give --as clip"):
        PublishedModel.of(CheckpointFile.read(tmp_path / "tuned.pt"), "x-vlm", (), {})


def openai_names(weights: dict[str, Tensor], layers: int) -> dict[str, Tensor]:
    """A state dict of transformers' CLIPModel under the names, and in the layout, of OpenAI's clip/model.py."""
    vision, text, found = "vision_model.", "text_model.", {"logit_scale": weights["logit_scale"]}
    for ours, theirs in {
        "visual.class_embedding": f"{vision}embeddings.class_embedding",
        "visual.conv1.weight": f"{vision}embeddings.patch_embedding.weight",
        "visual.positional_embedding": f"{vision}embeddings.position_embedding.weight",
        "token_embedding.weight": f"{text}embeddings.token_embedding.weight",
        "positional_embedding": f"{text}embeddings.position_embedding.weight",
    }.items():
        found[ours] = weights[theirs]
    norms = {"visual.ln_pre": "pre_layrnorm", "visual.ln_post": "post_layernorm"}
    names = {**{name: vision + norm for name, norm in norms.items()}, "ln_final": f"{text}final_layer_norm"}
    for tower, blocks in ((vision, "visual.transformer"), (text, "transformer")):
        for layer in range(layers):
            block, own = f"{blocks}.resblocks.{layer}.", f"{tower}encoder.layers.{layer}."
            modules = {"ln_1": "layer_norm1", "ln_2": "layer_norm2", "mlp.c_fc": "mlp.fc1", "mlp.c_proj": "mlp.fc2"}
            modules["attn.out_proj"] = "self_attn.out_proj"
            names |= {block + name: own + module for name, module in modules.items()}
            for end in ("weight", "bias"):
                parts = [weights[f"{own}self_attn.{part}_proj.{end}"] for part in "qkv"]
                found[f"{block}attn.in_proj_{end}"] = torch.cat(parts)
    found |= {f"{name}.{end}": weights[f"{own}.{end}"] for name, own in names.items() for end in ("weight", "bias")}
    found["visual.proj"] = weights["visual_projection.weight"].T.contiguous()
    found["text_projection"] = weights["text_projection.weight"].T.contiguous()
    assert sum(value.numel() for value in found.values()) == sum(value.numel() for value in weights.values())
    return found


@dataclass(frozen=True, eq=False)
class SavedClip:
    """A CLIP of transformers, and the file in float16 that holds it under OpenAI's names."""

    theirs: Any
    size: int
    """Of a picture, in pixels."""
    joint: int
    folder: Path
    """Of transformers' model and its tokenizer."""
    file: Path
    weights: dict[str, Tensor]


@pytest.fixture(scope="module", params=[(8, 32, 16), (4, 12, 24)], ids=["as ViT-B/32", "as ViT-L/14@336"])
def saved_clip(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> SavedClip:
    """As wide as the two are: towers of one and two heads of 64 values, joined in another width."""
    import transformers

    patch, size, joint = request.param
    folder = save_network(tmp_path_factory.mktemp("clip"), "clip-read")
    vision = {"image_size": size, "patch_size": patch, "hidden_size": 128, "num_attention_heads": 2}
    text = {"vocab_size": 18, "hidden_size": 64, "num_attention_heads": 1, "max_position_embeddings": 77}
    layers = {"num_hidden_layers": 2, "intermediate_size": 256}
    ends = {"eos_token_id": 3, "bos_token_id": 2}
    config = transformers.CLIPConfig(
        vision_config=vision | layers, text_config=text | layers | ends, projection_dim=joint
    )
    theirs = transformers.CLIPModel(config).half().float().eval()
    assert theirs.config.vision_config.hidden_act == "quick_gelu"
    theirs.save_pretrained(folder)
    weights = openai_names(theirs.state_dict(), 2)
    torch.save({name: value.half() for name, value in weights.items()}, folder / "ViT.pt")
    return SavedClip(theirs, size, joint, folder, folder / "ViT.pt", weights)


def test_clip_by_openais_names_has_the_scores_of_transformers(saved_clip: SavedClip) -> None:
    size, places = saved_clip.size, {"clip": saved_clip.folder}
    found = PublishedModel.of(CheckpointFile.read(saved_clip.file), "clip", (), places)
    view = View(size, "centre-crop", resampling=Resampling.BICUBIC, margin=1.0)
    assert (found.map.name, found.settings.dim, found.settings.image.view) == ("clip-openai", saved_clip.joint, view)
    model = DualEncoder(found.settings, (3, size, size), 1, seed=0, places=places).eval()
    model.load_weights(found.weights)
    images = torch.randint(0, 256, (2, 3, size, size), dtype=torch.uint8)
    ids, lengths = torch.tensor([[2, 5, 6, 3], [2, 7, 3, 0]]), torch.tensor([4, 3])
    backbone = model.image.backbone
    with torch.no_grad():
        pixels = (images.float() - backbone.mean) / backbone.deviation
        expected = saved_clip.theirs(pixel_values=pixels, input_ids=ids, attention_mask=(ids != 0).long())
        torch.testing.assert_close(model.embed_images(images), expected.image_embeds, rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(model.embed_texts(ids, lengths), expected.text_embeds, rtol=1e-4, atol=1e-5)


def test_another_clip_by_openais_names_is_refused(saved_clip: SavedClip, tmp_path: Path) -> None:
    file, weights = tmp_path / "ViT.pt", saved_clip.weights

    def save(changed: Mapping[str, Tensor | None]) -> None:
        torch.save({name: value for name, value in changed.items() if value is not None}, file)

    block = "visual.transformer.resblocks.1.attn.in_proj_weight"
    for name, value, message in (
        (block, None, rf"missing: {block} \(q_proj\.weight\)"),
        ("visual.attnpool.c_proj.weight", torch.ones(2), r"extra: visual\.attnpool\.c_proj\.weight"),
        ("ln_final.bias", torch.ones(3), r"ln_final\.bias is \(3,\) in the file and \(64,\) by its other sizes"),
    ):
        save({**weights, name: value})
        with pytest.raises(UserError, match=message):
            PublishedModel.of(CheckpointFile.read(file), "clip", (), {"clip": saved_clip.folder})


@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")  # OpenAI's files are such programs all the same
def test_a_program_is_refused_with_the_line_that_saves_its_weights(tmp_path: Path) -> None:
    program = torch.jit.trace(torch.nn.Linear(2, 2), torch.ones(1, 2))
    torch.jit.save(program, tmp_path / "ViT-B-32.pt")
    with pytest.raises(
        UserError, match=r"a program of TorchScript.*torch\.save\(torch\.jit\.load\('.*ViT-B-32\.pt', 'cpu'\)"
    ):
        CheckpointFile.read(tmp_path / "ViT-B-32.pt")


def test_the_file_says_what_it_is(tmp_path: Path) -> None:
    number = np.float64(0.5)  # older versions of the peers' code save numbers of NumPy among their options
    found = read(Peer("vsepp", "precomp", len(WORDS)).save(tmp_path / "v.tar", margin=number), "vsepp")
    assert (found.dataset, found.file.facts) == ("flickr8k", {"epoch": 3, "its validation rsum": 412.34})


def test_a_file_of_another_family_is_recognised(tmp_path: Path) -> None:
    scan = Peer("scan", "bigru", len(WORDS)).save(tmp_path / "scan.tar")
    rvse = Peer("rvse", "bigru", len(WORDS)).save(tmp_path / "rvse.tar")
    with pytest.raises(UserError, match=r"scan\.tar is not vsepp: it looks like SCAN .* Give --as scan"):
        read(scan, "vsepp")
    with pytest.raises(UserError, match=r"scan\.tar is not bfan: it looks like SCAN"):
        read(scan, "bfan")
    with pytest.raises(UserError, match=r"rvse\.tar is not vse-infinity: it looks like RVSE\+\+"):
        read(rvse, "vse-infinity")
    with pytest.raises(UserError, match=r"unknown family 'vsep' in --as\. Did you mean 'vsepp'\?"):
        read(scan, "vsep")


@pytest.mark.parametrize("name", KINDS)
def test_a_tensor_that_decides_a_size_is_named_if_it_is_missing_or_misshapen(
    name: str, bert: Path, tmp_path: Path
) -> None:
    family, kind = KINDS[name]
    path = peer_of(name, bert).save(tmp_path / "file")
    content = torch.load(path, weights_only=False)
    held = content["model"][0] if isinstance(content["model"], list) else content["model"]
    first = next(iter(held))
    cases = [(None, r"missing: .*(fc\.weight|conv1)"), (torch.ones(3, 3), r"(fc|conv1)\.weight |fc\.bias is")]
    for value, said in cases:
        held.pop(first, None)
        if value is not None:
            held[first] = value
        torch.save(content, path)
        with pytest.raises(UserError, match=said):
            read(path, family, [] if kind == "bert" else WORDS, bert)


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
    Path("text").write_text("junk\n")
    cases[Path("text")] = r"text of 5 bytes is damaged or half downloaded; fetch it again\.$"
    Path("old").write_bytes(pickle.dumps({"model": Evil()}))
    torch.save({"model": [], "opt": Evil()}, "evil.pth")
    cases |= {Path("evil.pth"): r"its pickle names posix\.mkdir, which does not belong in a checkpoint; it was not run"}
    torch.save({"epoch": 1}, "empty")
    cases[Path("empty")] = r"empty holds no weights"
    for path, said in cases.items():
        with pytest.raises(UserError, match=said):
            read(path, "vsepp")
    with pytest.raises(UserError, match="old"):
        read(Path("old"), "vsepp")
    assert not Path("evil").exists()
    with pytest.raises(UserError, match=r"no vocabulary given: whole knows words by their index"):
        read(whole, "vsepp", [])


def test_a_pipe_is_no_checkpoint(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.pt")
    with pytest.raises(UserError, match=r"the checkpoint .*pipe\.pt cannot be read: it is not a regular file\."):
        CheckpointFile.read(tmp_path / "pipe.pt")
