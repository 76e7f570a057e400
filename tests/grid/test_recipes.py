"""Recipes and presets: each loads, each published number says where it is from, and chains are part of identity."""

from fnmatch import fnmatchcase
from operator import attrgetter
from pathlib import Path

import pytest

from goalgrid.grid import catalog
from goalgrid.grid.errors import UserError
from goalgrid.grid.expansion import Trial, expand, trials_of
from goalgrid.grid.gridfile import load
from goalgrid.grid.identity import canonical, digest
from goalgrid.grid.settings.image_encoders import BackboneSettings, FeatureSettings
from tests.cases import every

PUBLISHED = [
    "vsepp-r152", "vsepp-r152-ft", "vsepp-vit-b16", "vsepp-vit-b16-ft", "vse-inf-butd", "vse-inf-butd-bigru",
    "vse-inf-wsl", "vsepp-butd", "vse-fc", "vse-mlp", "rvse-mlp", "rvsepp", "vse-2ad", "vse-2ad-bigru", "vse-2ad-fc",
    "scan-t2i", "scan-i2t", "bfan-equal", "bfan-prob", "sgr", "saf", "vsrn", "vsrn-coco",
]  # fmt: skip
TINY = 'recipes=["vsepp-r152-tiny-ft"]'
PROGRAM = Path(__file__).parents[2]


def text_of(recipe: str) -> str:
    """The file of a shipped recipe, ours or a part's, with its comments."""
    (file,) = (
        file for room in ("grid", "retrieval/components") for file in (PROGRAM / room).rglob(f"recipes/{recipe}.toml")
    )
    return file.read_text(encoding="utf-8")


def trials(*overrides: str, grid: str = "demo") -> list[Trial]:
    return trials_of(expand(load(grid, overrides)))


@every("name", catalog.names("recipes"))
def test_a_recipe_is_complete_and_says_first_what_it_is(name: str) -> None:
    recipe = catalog.recipe(name)
    assert recipe.description
    assert len(recipe.description) < 75
    assert text_of(name).startswith("# ")
    assert trials(f'recipes=["{name}"]')


def test_all_published_recipes_are_shipped() -> None:
    assert set(PUBLISHED) <= set(catalog.names("recipes"))


@every(
    ("name", "setting", "value"),
    [  # FACTS table of published settings
        ("vsepp-r152", "train.lr", 2e-4),
        ("vsepp-r152", "train.epochs", 30),
        ("vsepp-r152", "train.decay_every", 15),
        ("vsepp-r152-ft", "train.lr", 2e-5),
        ("vsepp-r152-ft", "train.epochs", 15),
        ("vsepp-vit-b16-ft", "train.lr", 2e-5),
        ("vse-inf-butd", "train.lr", 5e-4),
        ("vse-inf-butd", "train.text_lr_factor", 0.1),
        ("vse-inf-butd", "train.weight_decay", 1e-4),
        ("vse-inf-butd", "train.warmup_epochs", 1),
        ("vse-inf-butd", "train.drop_last", True),
        ("vse-inf-butd-bigru", "train.weight_decay", 1e-2),
        ("vse-inf-wsl", "train.image_lr_factor", 0.01),
        ("vse-inf-wsl", "train.frozen_epochs", 1),
        ("vse-inf-wsl", "train.ramp_epochs", 1),
        ("vse-inf-wsl", "train.drop_last", False),
        ("vse-inf-wsl", "model.image.size", 512),
        ("vsepp-butd", "train.epochs", 20),
        ("vsepp-butd", "model.image.pooling", "max"),
        ("rvsepp", "train.epochs", 30),
        ("rvsepp", "model.image.encoder", "residual-mlp"),
        ("vse-2ad", "model.text.pooling", "adpool"),
        ("vse-2ad", "train.weight_decay", 1e-4),
        ("vse-2ad-bigru", "train.weight_decay", 1e-2),
        ("vse-2ad-bigru", "train.text_lr_factor", 1.0),
        ("vse-2ad-fc", "model.image.pooling", "adpool"),
        ("vse-2ad-fc-manual", "model.image.pool_k", 5),
        ("vse-2ad-fc-manual", "model.text.pooling", "mean"),
        ("vse-inf-wsl", "model.image.augmentation", "scale-crop"),
        ("vsrn", "model.dim", 2048),
        ("vsrn", "train.epochs", 30),
        ("vsrn", "train.decay_every", 10),
        ("vsrn", "model.image.norm", "batch"),
        ("vsrn-coco", "train.decay_every", 15),
        ("vsrn-coco", "model.image.norm", "regions"),
        ("scan-t2i", "model.scorer.sharpness", 9.0),
        ("scan-i2t", "model.scorer.sharpness", 4.0),
        ("scan-i2t", "model.scorer.lse_sharpness", 5.0),
        ("scan-i2t", "train.lr", 2e-4),
        ("scan-i2t-coco", "model.scorer.lse_sharpness", 20.0),
        ("scan-i2t-coco", "model.scorer.sharpness", 4.0),
        *((f"scan-{own}-coco", "train.lr", 5e-4) for own in ("t2i", "i2t", "i2t-avg")),
        *((f"scan-{own}-coco", "train.epochs", 20) for own in ("t2i", "i2t", "i2t-avg")),
        *((f"scan-{own}-coco", "train.decay_every", 10) for own in ("t2i", "i2t", "i2t-avg")),
        ("scan-coco", "ensemble", ("scan-t2i-coco", "scan-i2t-coco")),
        ("scan-avg-coco", "ensemble", ("scan-t2i-coco", "scan-i2t-avg-coco")),
        ("xvlm", "model.fusion.candidates", 256),
        ("xvlm-f30k", "model.fusion.candidates", 128),
        ("mmt", "model.text.max_words", 30),
        ("bfan-prob", "model.scorer.sharpness", 20.0),
        ("bfan-prob", "train.epochs", 15),
        *((name, "model.text.init", "torch") for name in ("vse-inf-butd", "vse-inf-wsl", "rvsepp", "vse-2ad")),
        *((name, "train.drop_last", True) for name in ("vse-2ad", "vse-fc", "vse-mlp", "rvse-mlp", "rvsepp")),
        *((name, "model.image.hidden", 512) for name in ("vse-inf-butd", "vse-mlp", "rvse-mlp", "rvsepp", "vse-2ad")),
    ],
)  # fmt: skip
def test_published_numbers_survive_inheritance(name: str, setting: str, value: object) -> None:
    found: object = catalog.recipe(name)
    for part in setting.split("."):
        found = getattr(found, part)
    assert found == value


BRANCHES = {
    ("rnn", "project"): ("vse-2ad-bigru", 1e-2, 1.0, 1.0),
    ("rnn", "butd"): ("vse-2ad-grid-bigru", 1e-4, 1.0, 0.05),
    ("rnn", "vit"): ("vse-2ad-patch-bigru", 1e-2, 1.0, 0.05),
    ("bert", "project"): ("vse-2ad", 1e-4, 0.05, 1.0),
    ("bert", "butd"): ("vse-2ad-grid", 1e-4, 0.1, 0.05),
    ("bert", "vit"): ("vse-2ad-patch", 1e-4, 0.1, 0.05),
}
"""The six optimisers of VSE+2AD's train.py, by text and image encoder, with the commands of its README: the recipe, the
weight decay (1e-2 is AdamW's default), and the factors on the learning rate of BERT and of the image backbone."""

OF_PRETRAINED = 0.1
"""The factor of pre-trained modules by appendix B of VSE+2AD, which decides where its code has another."""


@every(("text", "image"), BRANCHES)
def test_every_branch_of_vse_2ad_trains_as_its_code_but_for_the_rates_that_its_paper_prints(
    text: str, image: str
) -> None:
    name, decay, text_factor, image_factor = BRANCHES[text, image]
    recipe = catalog.recipe(name)
    train, model = recipe.train, recipe.model
    assert train.weight_decay == decay
    assert train.text_lr_factor == (text_factor if text_factor == 1 else OF_PRETRAINED)
    assert train.image_lr_factor == (image_factor if image_factor == 1 else OF_PRETRAINED) or image == "project"
    assert (train.optimizer, train.lr, train.epochs, train.batch_size) == ("adamw", 5e-4, 25, 128)
    assert (train.clip_norm, train.decay_every, train.decay_factor) == (2.0, 15, 0.1)
    assert (train.frozen_epochs, train.drop_last) == (int(image == "butd"), image == "project")
    assert model.text.encoder == {"rnn": "bigru", "bert": "transformer"}[text]
    if isinstance(model.image, FeatureSettings):
        assert (image, model.image.encoder, model.image.normalize) == ("project", "linear-mlp", False)
    else:
        assert isinstance(model.image, BackboneSettings)
        assert (model.image.head, model.image.output, model.image.normalize) == ("linear", "grid", False)


@every("name", [name for name in catalog.names("recipes") if name.startswith("vse-2ad-fc")])
def test_the_ablations_of_vse_2ad_are_of_its_branch_of_bigru_on_regions(name: str) -> None:
    assert catalog.recipe(name).train == catalog.recipe(BRANCHES["rnn", "project"][0]).train


@every(
    ("recipe", "other"),
    [("clip-zero-shot", "clip-vit-l14-336"), ("clip-zero-shot-tiny", "clip-tiny"), ("xvlm-zero-shot", "xvlm")],
)
def test_a_recipe_without_training_has_no_epochs(recipe: str, other: str) -> None:
    """Beside a recipe that trains, it stays as it is; alone, the recipe that trains its model is named."""
    wanted = 'objectives=["unified"]', "seeds=[0]", "train.epochs=3"
    both = trials(f'recipes=["{recipe}", "{other}"]', *wanted)
    assert [(trial.settings.recipe, trial.epochs) for trial in both] == [(recipe, 0), (other, 3)]
    said = rf"train\.epochs has no effect .* it needs a recipe that trains, such as '{other}' instead of '{recipe}'"
    with pytest.raises(UserError, match=said):
        trials(f'recipes=["{recipe}"]', *wanted)


@every("recipe", ["vse-inf-butd", "rvse-mlp", "vse-2ad"])
def test_the_mlp_is_half_as_wide_as_the_space_unless_it_is_set(recipe: str) -> None:
    def hidden(*overrides: str) -> list[int]:
        found = (trial.shared.model.image for trial in trials(f'recipes=["{recipe}"]', "seeds=[0]", *overrides))
        return list(dict.fromkeys(image.hidden for image in found if isinstance(image, FeatureSettings)))

    assert hidden("sweep.model.dim=[64,256,1024]") == [32, 128, 512]
    assert hidden("model.dim=64", "model.image.hidden=48") == [48]


@every("name", PUBLISHED)
def test_all_published_settings_share_batch_clip_and_space(name: str) -> None:
    recipe = catalog.recipe(name)
    dim = 2048 if name.startswith("vsrn") else 1024
    assert (recipe.train.batch_size, recipe.train.clip_norm, recipe.model.dim) == (128, 2.0, dim)


def test_the_vse_infinity_heads_differ_as_published() -> None:
    region, grid = catalog.recipe("vse-inf-butd").model.image, catalog.recipe("vse-inf-wsl").model.image
    assert isinstance(region, FeatureSettings)
    assert region.encoder == "linear-mlp"
    assert isinstance(grid, BackboneSettings)
    assert (grid.head, grid.output, grid.frozen) == ("linear", "grid", False)


@pytest.mark.parametrize("data", ["coco", "f30k"])
@pytest.mark.parametrize(
    ("table", "recipes", "count"), [(2, 4, 24), (3, 2, 90), (4, 2, 90), (5, 2, 90)], ids=lambda value: str(value)
)
def test_presets_have_the_papers_counts(data: str, table: int, recipes: int, count: int) -> None:
    """15 objectives x 3 seeds a block; Table 2 holds the loss and its gradient for every recipe."""
    cells = expand(load(f"goal-table{table}-{data}"))
    assert len({cell.recipe for cell in cells}) == recipes
    assert len(trials_of(cells)) == count
    assert all(len(cell.trials) == 3 for cell in cells)


@every(
    ("preset", "setting", "recipes", "values"),
    [
        ("unified-table1", "model.scorer.lse_sharpness", "scan-i2t*", {"flickr30k": 5.0, "coco": 20.0}),
        ("goal-table6", "model.fusion.candidates", "xvlm*", {"flickr30k": 128, "coco": 256}),
        ("unified-table2", "dataset.val_images", "*", {"flickr30k": 1000, "coco": None}),
    ],
)
def test_a_setting_that_is_published_by_data_set_has_each_ones_value(
    preset: str, setting: str, recipes: str, values: dict[str, object]
) -> None:
    found: dict[str, set[object]] = {}
    for cell in expand(load(preset)):
        if fnmatchcase(cell.recipe, recipes):
            found.setdefault(cell.dataset, set()).add(attrgetter(setting)(cell.trials[0].settings))
    assert found == {dataset: {value} for dataset, value in values.items()}


def test_ce_and_mmt_cut_captions_where_their_codes_do() -> None:
    cells = expand(load("unified-table4"))
    every = [(cell.recipe, cell.trials[0].settings) for cell in cells]
    assert {name: own.model.text.longest(own.dataset.max_words) for name, own in every} == {"ce": 37, "mmt": 30}


class TestChains:
    def test_a_parent_is_added_and_comes_first(self) -> None:
        ours = trials(TINY, "seeds=[0]")
        assert [trial.settings.recipe for trial in ours] == ["vsepp-r152-tiny"] * 15 + ["vsepp-r152-tiny-ft"] * 15
        assert [trial.parents for trial in ours[15:]] == [(trial.id,) for trial in ours[:15]]

    def test_naming_the_parent_changes_nothing(self) -> None:
        both = 'recipes=["vsepp-r152-tiny-ft","vsepp-r152-tiny"]'
        assert [trial.id for trial in trials(TINY)] == [trial.id for trial in trials(both)]

    def test_a_parent_is_the_trial_that_a_grid_of_its_own_has(self) -> None:
        alone = trials('recipes=["vsepp-r152-tiny"]')
        assert {trial.id for trial in alone} <= {trial.id for trial in trials(TINY)}

    def test_parents_have_the_childs_objective_seed_and_sweep_point(self) -> None:
        ours = {trial.id: trial for trial in trials(TINY, "sweep.train.clip_norm=[1.0, 2.0]")}
        children = [trial for trial in ours.values() if trial.parents]
        assert len(children) == 90
        for child in children:
            parent = ours[child.parents[0]].settings
            assert parent.objective == child.settings.objective
            assert parent.seed == child.settings.seed
            assert parent.train.clip_norm == child.settings.train.clip_norm

    def test_a_changed_parent_changes_the_childs_identity(self) -> None:
        child = trials(TINY)[-1].settings
        other = child.model_copy(update={"starts_from": f"{child.starts_from}x"})
        assert digest(canonical(child)) != digest(canonical(other))


def test_weights_are_places_and_no_identity() -> None:
    plain, placed = load("goal-table3-f30k"), load("goal-table3-f30k", weights=["microsoft/resnet-152=/data/r152"])
    assert placed.places()["microsoft/resnet-152"].name == "r152"
    assert [trial.id for trial in trials_of(expand(plain))] == [trial.id for trial in trials_of(expand(placed))]
    with pytest.raises(UserError, match="is not NAME=DIR"):
        load("demo", weights=["/data/r152"])
