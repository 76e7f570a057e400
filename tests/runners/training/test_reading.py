"""Every setting is read: changed, it changes the numbers of a tiny training, or a grid refuses it as an axis."""

import json
from collections.abc import Iterator
from functools import cache
from itertools import zip_longest
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from goalgrid.grid.resolution import lacking
from goalgrid.grid.settings import Reader, TrialSettings
from goalgrid.grid.settings.base import ReadWhere
from goalgrid.grid.settings.text_encoders import TransformerSettings
from goalgrid.retrieval.scorers.sets import TokenSets
from goalgrid.runners.training import inputs
from goalgrid.runners.training.embedding import Captions
from goalgrid.runners.training.inputs import data_fingerprint, prepare
from goalgrid.runners.training.learner import Learner
from goalgrid.runners.training.machine import Machine
from goalgrid.runners.training.trainer import embedded
from tests.cases import every
from tests.retrieval.components.video import made

from ...conftest import swapped

WORDS = ["red", "green", "blue", "dog", "cat", "ball", "cats", "cat's", "jumps", "grass", "sand", "snow"]
CLIP = {
    "model_type": "clip_text_model",
    "hidden_size": 8,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "intermediate_size": 8,
}
RESNET = {"model_type": "resnet", "embedding_size": 4, "hidden_sizes": [4, 8], "depths": [1, 1], "layer_type": "basic"}
"""Text networks and image networks in the size of a test."""

PICTURES = {"encoder": "backbone", "weights": "random", "architecture": RESNET, "size": 32, "drop": 0.3, "hidden": 6}
EXPERTS = {"face": 6, "speech": 5}
IMAGE = {
    "cnn": {"encoder": "cnn", "size": 16, "channels": 4, "layers": 2},
    "regions": {"encoder": "linear", "drop": 0.3},
    "regions, MLP": {"encoder": "linear-mlp", "hidden": 6, "pooling": "adpool"},
    "frozen, pooled": {**PICTURES, "frozen": True},
    "frozen, grid of crops": {**PICTURES, "frozen": True, "crops": 2, "head": "mlp"},
    "learning grid": {
        **PICTURES,
        "frozen": False,
        "output": "grid",
        "pooling": "kmax",
        "pool_k": 2,
        "norm_eval": False,
    },
    "swin": {
        "encoder": "swin",
        "size": 16,
        "framing": "centre-crop",
        "width": 4,
        "depths": [1, 1],
        "heads": [1, 1],
        "window": 1,
    },
    "videos, CE": {"encoder": "ce", "experts": EXPERTS, "tokens": {"speech": 3}, "clusters": {"speech": 2}},
    "videos, MMT": {"encoder": "mmt", "experts": EXPERTS, "tokens": 3, "layers": 1, "heads": 2, "feed_forward": 8},
}
TEXT = {
    "bow": {"encoder": "bow", "word_dim": 6},
    "gru": {"encoder": "gru", "word_dim": 6},
    "bigru": {"encoder": "bigru", "word_dim": 6, "pooling": "kmax", "pool_k": 2},
    "transformer": {"encoder": "transformer", "weights": "random", "architecture": CLIP},
    "bert-layers": {"encoder": "bert-layers", "pieces": "random", "layers": 1, "width": 8, "heads": 1, "hidden": 8},
    "experts": {"encoder": "gated", "weights": "random", "architecture": CLIP, "experts": 2},
    "experts, frozen": {
        "encoder": "gated",
        "weights": "random",
        "architecture": CLIP,
        "experts": 2,
        "clusters": 2,
        "tokens": 4,
        "frozen": True,
    },
    "frozen transformer": {"encoder": "transformer", "weights": "random", "architecture": CLIP, "frozen": True},
}
OTHER = {
    "pooling": "max", "pool_k": 3, "pool_balance": 0.25, "hidden": 5, "drop": 0.6, "drop_rule": "each",
    "size": 24, "channels": 5, "layers": 3, "dropout": 0.3, "crops": 3,
    "framing": "square", "margin": 1.5, "filter": "bicubic", "augmentation": "side-crop", "statistics": "half",
    "prompt": "blue dog", "word_drop": 0.4, "word_dim": 5, "dim": 12,
    "train_images": 7, "min_count": 9, "max_words": 1, "words": "nltk", "vocabulary": "peer.json",
    "batch_size": 7, "optimizer": "adamw", "lr": 0.02, "weight_decay": 0.3, "decay_every": 2, "decay_factor": 0.7,
    "warmup_epochs": 1, "text_lr_factor": 0.3, "image_lr_factor": 0.3, "frozen_epochs": 1, "ramp_epochs": 2,
    "clip_norm": 0.1, "width": 16, "depths": 2, "heads": 4, "window": 2, "drop_path": 0.5, "noise": 0.9,
    "noise_seed": 1, "captions": "one", "feed_forward": 9, "tokens": 2, "clusters": 3, "rise_share": 0.5, "beta2": 0.5,
    "cache": "shrunk",
}  # fmt: skip
"""Another value of every setting, or of every member of a list; a truth value is turned around."""
TURNED = {
    "output": {"pooled": "grid", "grid": "pooled", "states": "projected"},
    "init": {"xavier": "torch", "torch": "xavier"},
    "networks": {"single": "twins"},
    "preparation": {"none": "x-vlm"},
    "head": {"linear": "none", "mlp": "residual-mlp"},
    "undecayed": {"none": "biases-and-norms"},
    "schedule": {"steps": "linear"},
}
"""The other value of settings that have few."""
OFFLINE = ("candidates", "ranker", "ranker_objective")
ELSEWHERE = (
    "encoder", "weights", "architecture", "name", "protocol", "val_images", "scorer", "fusion", "pieces", "experts",
    "call", "trains",
    *OFFLINE,
)  # fmt: skip
LATER = (
    "epochs", "selection", "precision", "compile", "tf32", "starts_from", "trace_every", "micro_batch",
    "checkpoint_activations",
)  # fmt: skip
"""Settings that choose what is trained or evaluated at all, and those that tests of the trainer change."""
OF_TRAINING = ("optimizer", "undecayed", "rise_share", "decay_every", "decay_factor")
"""Settings whose condition is on settings of training alone."""
BASES = [(image, "bow") for image in IMAGE if "videos" not in image]
BASES += [("regions", text) for text in TEXT if text != "bow" and "experts" not in text]
BASES += [("videos, CE", "experts"), ("videos, MMT", "experts, frozen")]


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Machine:
    """Twelve pictures, and regions of as many, with two captions each; validation and test have four."""
    root, rng = tmp_path_factory.mktemp("data"), np.random.default_rng(0)
    entries = []
    known = ["<pad>", "<start>", "<end>", "<unk>", *WORDS[2:]]
    for folder in (root, pictures := tmp_path_factory.mktemp("pictures")):
        (folder / "peer.json").write_text(json.dumps({"word2idx": {word: i for i, word in enumerate(known)}}))
    for split, count in (("train", 12), ("dev", 4), ("test", 4)):
        lines = [" ".join(rng.choice(WORDS, rng.integers(2, 7))) + "." for _ in range(2 * count)]
        (root / f"{split}_caps.txt").write_text("\n".join(lines) + "\n")
        np.save(root / f"{split}_ims.npy", rng.normal(size=(count, 5, 10)).astype(np.float32))
        for i in range(count):
            Image.fromarray(rng.integers(0, 255, (40, 56, 3), dtype=np.uint8)).save(root / f"{split}{i}.png")
            sentences = [{"raw": line} for line in lines[2 * i : 2 * i + 2]]
            entries.append(
                {"filename": f"{split}{i}.png", "split": split.replace("dev", "val"), "sentences": sentences}
            )
    (pictures / "images").symlink_to(root)
    (pictures / "dataset.json").write_text(json.dumps({"images": entries}))
    videos = made.write(root / "videos", EXPERTS, {"train": 12, "validate": 4, "test": 4})
    roots = (("pictures", str(pictures)), ("regions", str(root)), ("videos", str(videos)))
    return Machine(roots=roots, features=root / "features")


def content_of(image: str, text: str) -> dict[str, Any]:
    name = next((name for name in ("regions", "videos") if name in image), "pictures")
    scorer = {"kind": "mixture" if name == "videos" else "product"}
    return {
        "dataset": {"name": name, "protocol": f"{name}-test", "min_count": 1},
        "recipe": "none",
        "model": {"image": IMAGE[image], "text": TEXT[text], "dim": 8, "scorer": scorer},
        "train": {"epochs": 2, "batch_size": 10, "lr": 0.01, "decay_every": 1, "weight_decay": 0.01},
        "objective": {"name": "triplet-hn", "parameters": {"margin": 0.2}},
        "seed": 0,
    }


def settings_to_change() -> list[tuple[str, str, str]]:
    """Settings of all encoders; with the first model those of data and training, later those that depend on a model."""
    found = []
    for place, (image, text) in enumerate(BASES):
        whole = TrialSettings.model_validate(content_of(image, text))
        sections = {"model.image": whole.model.image, "model.text": whole.model.text}
        if text != "bow" and "videos" not in image:
            del sections["model.image"]
        if text == "bow" and place:  # it reads its settings alike beside every image encoder
            del sections["model.text"]
        if not place:
            sections |= {"model": whole.model, "dataset": whole.dataset}
        sections |= {"train": whole.train} if "videos" not in image else {}
        for section, own in sections.items():
            for name, field in type(own).model_fields.items():
                depends = any(isinstance(mark, ReadWhere) for mark in field.metadata) and name not in OF_TRAINING
                if name not in (*ELSEWHERE, *LATER, "image", "text") and (depends or section != "train" or not place):
                    full = f"{section}.{name}"
                    found.append((image, text, full))
    return found


@cache
def numbers(settings: str, machine: Machine) -> tuple[float, ...]:
    return tuple(numbers_in_turn(settings, machine))


def numbers_in_turn(settings: str, machine: Machine) -> Iterator[float]:
    """Loss and gradient norm of every step of two epochs, and what images and captions look like after them."""
    whole = TrialSettings.model_validate_json(settings)
    given = prepare(whole, machine)
    learner = Learner(whole, given)
    for epoch in range(whole.train.epochs):
        batches = learner.begin(epoch)
        for place, batch in batches.since(0):
            measured = learner.gradient(batch, place / len(batches))
            yield from (float(measured["loss"]), float(measured["grad_norm"]))
            learner.optimizer.step()
    found = embedded(learner.model, whole, given, "val")[:2]
    parts = [part.sets if isinstance(part, Captions) else part for part in found]
    vectors = [part.vectors if isinstance(part, TokenSets) else part for part in parts]
    yield from torch.cat(vectors).flatten().tolist()


@pytest.mark.gate
@every(("image", "text", "name"), settings_to_change())
def test_a_setting_changes_the_numbers_or_is_no_axis(image: str, text: str, name: str, machine: Machine) -> None:
    plain = TrialSettings.model_validate(content_of(image, text))
    content = json.loads(plain.model_dump_json())
    *path, last = name.split(".")
    table = content
    for part in path:
        table = table[part]
    own = table[last]
    if isinstance(own, list):
        table[last] = [OTHER[last]] * len(own)
    elif isinstance(own, dict):
        table[last] = {key: value + 1 for key, value in own.items()}
    else:
        table[last] = (not own) if isinstance(own, bool) else TURNED[last][own] if last in TURNED else OTHER[last]
    changed = TrialSettings.model_validate(content)
    section, _, within = name.partition(".")
    reader = None if section == "model" else Reader(changed.model, warms_up=True, needs=())
    pairs = zip_longest(numbers(plain.model_dump_json(), machine), numbers_in_turn(changed.model_dump_json(), machine))
    same = all(ours == theirs for ours, theirs in pairs)  # trains to the first difference
    assert same == bool(lacking(getattr(changed, section), within, reader))


@pytest.mark.parametrize("output", ["states", "projected"])
def test_cached_features_of_a_text_network_train_as_the_network_does(
    output: str, machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = content_of("regions", "frozen transformer")
    content["model"]["text"] = {**content["model"]["text"], "output": output, "pooling": "max"}
    settings = TrialSettings.model_validate(content).model_dump_json()
    cached = numbers(settings, machine)
    monkeypatch.setattr(TransformerSettings, "feature_network", None)  # then it runs at every step
    inputs._inputs.cache_clear()
    np.testing.assert_allclose(numbers.__wrapped__(settings, machine), cached, rtol=5e-3, atol=2e-3)
    inputs._inputs.cache_clear()


def test_the_content_of_a_vocabulary_is_data(machine: Machine) -> None:
    """Two files under two names: other ids; the fingerprint of the data tells their content."""
    root = Path(dict(machine.roots)["regions"])
    (root / "same.json").write_text((root / "peer.json").read_text())
    (root / "other.json").write_text(swapped((root / "peer.json").read_text(), "blue", "navy"))
    prints = {}
    for name in ("peer.json", "same.json", "other.json", None):
        content = content_of("regions", "bow")
        content["dataset"] |= {"vocabulary": name}
        settings = TrialSettings.model_validate(content)
        prints[name] = data_fingerprint(prepare(settings, machine), settings.model)
    assert prints["peer.json"] == prints["same.json"]
    assert len(set(prints.values())) == 3
