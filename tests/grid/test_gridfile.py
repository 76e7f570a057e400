"""Grid files: what they may say, and that every mistake in one is reported at once."""

from pathlib import Path

import pytest
from pydantic import Strict

from goalgrid.grid import catalog
from goalgrid.grid.cross_checks import dotted_names
from goalgrid.grid.errors import UserError
from goalgrid.grid.expansion import expand, trials_of
from goalgrid.grid.gridfile import Grid, load
from goalgrid.grid.objectives.goal_matrix import GOAL
from goalgrid.grid.settings.base import Settings
from goalgrid.grid.settings.scorers import BfanSettings
from tests.cases import every

from ..conftest import checked, swapped

MINIMAL = {"name": "g", "datasets": ["shapes"], "recipes": ["cnn-bow"], "objectives": "goal", "seeds": [0]}


def ids(grid: Grid) -> list[str]:
    return [trial.id for trial in trials_of(expand(grid))]


@every("name", catalog.names("presets"))
def test_every_preset_expands(name: str) -> None:
    assert expand(load(name))


@every("name", catalog.names("recipes"))
def test_every_recipe_is_complete(name: str) -> None:
    assert expand(checked({**MINIMAL, "recipes": [name]}))


def test_goal_stands_for_the_15() -> None:
    assert checked(MINIMAL).objectives == list(GOAL)
    assert checked({**MINIMAL, "objectives": ["goal"]}).objectives == list(GOAL)


def test_all_mistakes_are_reported_at_once() -> None:
    content = {
        "name": "my grid",
        "datasets": ["shape"],
        "recipes": ["cnn-bwo"],
        "objectives": ["sigg_cir", "con_circle", "con_con", "con_con"],
        "seeds": [],
        "set": {"train.epoch": 3, "objective.tau": "steep"},
        "colour": "red",
    }
    with pytest.raises(UserError) as caught:
        checked(content)
    message = str(caught.value)
    for part in (
        "name: a name begins with a letter or digit",
        "(got 'my grid')",
        "unknown dataset 'shape' in datasets[0]. Did you mean 'shapes'?",
        "unknown recipe 'cnn-bwo' in recipes[0]. Did you mean 'cnn-bow'?",
        "unknown pair weight 'sigg' of objective 'sigg_cir' in objectives[0]. Did you mean 'sig'?",
        "unknown triplet weight 'circle' of objective 'con_circle' in objectives[1]. Did you mean 'cir'?",
        "objectives: con_con is listed more than once",
        "seeds: it needs 1 or more entries",
        "unknown setting 'train.epoch' in [set]. Did you mean 'train.epochs'?",
        "unknown key 'colour'. Known: name, datasets, recipes,",
    ):
        assert part in message


def test_wrong_values_of_settings_are_reported_with_all_other_mistakes() -> None:
    content = {
        **MINIMAL,
        "objectives": ["con_cir"],
        "recipes": ["cnn-bow", "fc-bow"],
        "set": {"train.epochs": -1, "objective.tau": "a", "model.dim": 0, "train.epoch": 3},
        "sweep": {"train.batch_size": [1, 64]},
        "where": [{"cells": {"recipe": "cnn-bow"}, "set": {"train.clip_norm": -3, "model.image.channels": 8}}],
        "resources": {"cpu": 0},
    }
    with pytest.raises(UserError) as caught:
        checked(content)
    heading, *problems = str(caught.value).splitlines()
    assert "problems" in heading
    assert sorted(problem.removeprefix("  - ").partition(". Did")[0] for problem in problems) == [
        "objective.tau must be a number, not 'a'",
        *(
            f"recipe {recipe!r}: {problem}"
            for recipe, further in (("cnn-bow", ["train.clip_norm: it should be above 0 (got -3)"]), ("fc-bow", []))
            for problem in (
                "model.dim: it should be at least 2 (got 0)",
                "train.batch_size: it should be at least 2 (got 1)",
                *further,
                "train.epochs: it should be at least 0 (got -1)",
            )
        ),
        "resources.cpu: it should be above 0",
        "unknown setting 'train.epoch' in [set]",
    ]


def test_values_of_several_sections_are_reported_together() -> None:
    with pytest.raises(UserError) as caught:
        ids(checked({**MINIMAL, "set": {"train.epochs": -1, "model.dim": 0, "dataset.train_images": 0}}))
    said = str(caught.value)
    assert all(part in said for part in ("train.epochs: it", "model.dim: it", "dataset.train_images: it")), said


def test_a_parameter_of_no_objective_is_an_error() -> None:
    with pytest.raises(UserError, match=r"objective\.tau: none of the grid's objectives has this parameter"):
        checked({**MINIMAL, "objectives": ["con_con"], "set": {"objective.tau": 3}})


def test_a_wrong_type_of_an_objective_parameter_is_an_error() -> None:
    with pytest.raises(UserError, match=r"objective\.tau must be a number, not 'steep'"):
        checked({**MINIMAL, "sweep": {"objective.tau": [1, "steep"]}})


@every(
    ("override", "part"),
    [
        ("train.lr=-1", "train.lr: it should be above 0"),
        ("train.batch_size=1", "train.batch_size: it should be at least 2"),
        ("train.lr=true", "train.lr: it should be a number (got 'true')"),
        ("resources.gpu=false", "resources.gpu: it should be a number (got 'false')"),
        (
            "resources.gpu=1.5",
            "resources.gpu: it should be a fraction of one GPU, up to 1, or a whole number of GPUs (got 1.5)",
        ),
        ("train.mean_loss=yes", "train.mean_loss: it should be true or false (got 'yes')"),
        ("train.mean_loss=1", "train.mean_loss: it should be true or false (got 1)"),
        ("resources.cuda_graphs=off", "resources.cuda_graphs: it should be true or false (got 'off')"),
        ("seeds=[0,true]", "seeds.1: it should be a whole number (got 'true')"),
        ("seeds=99999999999999999999", "seeds.0: it should be below"),
        ('evaluate.protocols="eccv"', "evaluate.protocols: it should be a list (got 'eccv')"),
        ('trackers=["wandbb"]', "unknown tracker 'wandbb'. Did you mean 'wandb'? Known: mlflow, tensorboard, wandb."),
        ('seeds="until resolvd"', 'seeds must be a list of whole numbers or "until resolved"'),
        (
            "model.image.encoder=linaer",
            "unknown encoder 'linaer' in recipe 'frozen-bow': model.image. Did you mean 'linear'?",
        ),
    ],
)
def test_a_value_out_of_range_is_named(override: str, part: str) -> None:
    with pytest.raises(UserError) as caught:
        expand(load("demo", [override]))
    assert part in str(caught.value)


def test_every_truth_value_is_true_or_false() -> None:
    """Where pydantic alone would take "yes", "on" and 1, too."""
    settings = [Settings]
    for model in settings:
        settings += model.__subclasses__()
        for name, field in model.model_fields.items():
            assert field.annotation is not bool or Strict() in field.metadata, f"{model.__name__}.{name}: StrictBool"


def test_none_is_as_if_the_setting_were_not_given(tmp_path: Path) -> None:
    """Also over a grid that gives it: TOML has no null."""
    base = {"train.micro_batch": 50, "dataset.train_images": 200, "dataset.vocabulary": "words.pkl"}
    given = checked({**MINIMAL, "set": base, "resources": {"gpu": 0.5}})
    (tmp_path / "base.toml").write_text(given.to_toml())
    over, lines = tmp_path / "over.toml", [f'"{name}" = "none"' for name in base]
    over.write_text("\n".join(['extends = "base.toml"', 'name = "g"', "[set]", *lines, "[resources]", 'gpu = "none"']))
    assert not {*ids(given)} & {*ids(checked(MINIMAL))}
    grid = load(str(over))
    assert grid.resources.gpu is None
    assert ids(grid) == ids(checked(MINIMAL))
    assert ids(load("demo", [f"{name}=none" for name in base])) == ids(load("demo"))
    select = load("demo", ["select.over={'train.lr'=[1e-3,1e-4]}", "select.draws=none"]).select
    assert select
    assert select.draws is None
    assert {*ids(load("demo"))} < {*ids(load("demo", ["sweep.dataset.train_images=['none',200]"]))}


@every(
    ("setting", "part"),
    [
        ("checkpoint_minutes=0", "checkpoint_minutes: it should be above 0"),
        ("checkpoint_steps=0", "checkpoint_steps: it should be above 0"),
        ("stall_minutes=0", "stall_minutes: it should be above 0"),
        ("stall_minutes=soon", "stall_minutes: it should be a number"),
        ("grace_seconds=-1", "grace_seconds: it should be at least 0"),
        ("folder_seconds=-1", "folder_seconds: it should be at least 0"),
    ],
)
def test_a_bad_value_of_reliability_is_named(setting: str, part: str) -> None:
    with pytest.raises(UserError) as caught:
        load("demo", [f"reliability.{setting}"])
    assert str(caught.value).count("reliability.") == 1
    assert f"reliability.{part}" in str(caught.value)


def test_set_takes_axes_settings_and_sweeps() -> None:
    grid = load("demo", ["seeds=[7]", "train.lr=1e-3", "sweep.objective.tau=[1, 10]", "resources.cpu=2"])
    assert grid.seeds == [7]
    assert grid.set == {"objective.variant": "released", "train.lr": 1e-3}
    assert grid.sweep == {"objective.tau": [1, 10]}
    assert grid.resources.cpu == 2


def test_a_list_for_a_setting_says_how_to_sweep_it() -> None:
    with pytest.raises(UserError, match=r"--set 'sweep\.train\.lr=\[1, 2\]'"):
        load("demo", ["train.lr=[1, 2]"])


def test_root_belongs_to_the_only_data_set_or_is_named() -> None:
    assert load("flickr8k", roots=["/data"]).root("flickr8k") == Path("/data")
    assert load("flickr8k", roots=["flickr8k=/data"]).root("flickr8k") == Path("/data")
    assert load("flickr8k", ["datasets=mine"], roots=["mine=/data"]).root("mine") == Path("/data")
    with pytest.raises(UserError, match="say which"):
        load("flickr8k", ['datasets=["shapes","flickr8k"]'], roots=["/data"])


def test_a_relative_path_of_data_or_weights_begins_at_its_own_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = 'objectives = "con_con"\nseeds = 0\nrecipes = "vsepp-r152"\n[weights]\n"microsoft/resnet-152" = "r152"\n'
    (tmp_path / "base.toml").write_text(f'{content}[data.mine]\nroot = "photos"\n')
    (tmp_path / "below").mkdir()
    grid = tmp_path / "below" / "grid.toml"
    grid.write_text('extends = "../base.toml"\nname = "g"\ndatasets = ["mine", "b"]\n[data.b]\nroot = "b"\n')
    monkeypatch.chdir(tmp_path)
    loaded = load("below/grid.toml")
    assert [loaded.root(name) for name in loaded.datasets] == [tmp_path / "below/../photos", tmp_path / "below/b"]
    assert loaded.places() == {"microsoft/resnet-152": tmp_path / "below/../r152"}
    assert load("below/grid.toml", ["data.b.root=b"]).root("b") == tmp_path / "b", "of the shell, its folder"


def test_data_of_ones_own_needs_only_a_root() -> None:
    grid = checked({**MINIMAL, "datasets": ["mine"], "data": {"mine": {"root": "/data"}}})
    assert expand(grid)[0].trials[0].settings.dataset.protocol == "mine-test"


def test_a_grid_survives_its_file(tmp_path: Path) -> None:
    overrides = ["train.lr=5e-4", "sweep.objective.tau=[1, 10]", 'tables=["goal-table6"]']
    grid = load("flickr8k", overrides, roots=["/data"])
    path = tmp_path / "grid.toml"
    path.write_text(grid.to_toml())
    assert load(str(path)) == grid


def test_files_that_are_missing_or_no_toml_are_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no file "):
        load(str(tmp_path / "none.toml"))
    (tmp_path / "bad.toml").write_text("name =")
    with pytest.raises(UserError, match="is not valid TOML"):
        load(str(tmp_path / "bad.toml"))
    with pytest.raises(UserError, match="Did you mean 'demo'"):
        load("dmeo")


def test_dotted_names_are_all_settable() -> None:
    assert {"train.lr", "model.image.size", "model.text.pooling", "objective.tau", "dataset.min_count"} <= set(
        dotted_names()
    )
    assert "dataset.name" not in dotted_names()
    assert isinstance(load("demo"), Grid)


class TestForms:
    """What people write for the same grid."""

    def loaded(self, folder: Path, text: str, encoding: str = "utf-8") -> Grid:
        """The grid of a file with this text below a minimal one's lines."""
        lines = 'name = "g"\nrecipes = ["cnn-bow"]\nobjectives = ["con_nca"]\n'
        (folder / "grid.toml").write_text(lines + text, encoding=encoding)
        return load(str(folder / "grid.toml"))

    AXES = 'datasets = ["shapes"]\nseeds = [0]\n'

    def test_a_single_value_stands_for_a_list_of_one(self, tmp_path: Path) -> None:
        text = 'datasets = "shapes"\nseeds = 0\ntables = "goal-table6"\n[sweep]\n"train.lr" = 1e-3\n'
        grid = self.loaded(tmp_path, text)
        assert (grid.datasets, grid.seeds, grid.tables, grid.sweep) == (
            ["shapes"], [0], ["goal-table6"], {"train.lr": [1e-3]},
        )  # fmt: skip
        assert load("demo", ["recipes=cnn-bow", "seeds=3"]).seeds == [3]

    @pytest.mark.parametrize(
        "text", ['[set]\n"train.epochs" = 1\n', "[set.train]\nepochs = 1\n", "[set]\ntrain.epochs = 1\n"]
    )
    def test_settings_stand_in_dotted_names_or_in_tables(self, text: str, tmp_path: Path) -> None:
        assert self.loaded(tmp_path, self.AXES + text).set == {"train.epochs": 1}
        swept = swapped(swapped(text, "[set", "[sweep"), "= 1", "= [1, 2]")
        assert self.loaded(tmp_path, self.AXES + swept).sweep == {"train.epochs": [1, 2]}

    def test_a_setting_that_stands_there_twice_is_named(self, tmp_path: Path) -> None:
        with pytest.raises(UserError, match=r"train\.epochs appears more than once in \[set\]"):
            self.loaded(tmp_path, self.AXES + '[set]\n"train.epochs" = 1\n[set.train]\nepochs = 2\n')

    def test_an_override_replaces_a_setting_in_a_table(self, tmp_path: Path) -> None:
        self.loaded(tmp_path, self.AXES + "[set.train]\nepochs = 1\n")
        assert load(str(tmp_path / "grid.toml"), ["train.epochs=2"]).set == {"train.epochs": 2}

    def test_a_byte_order_mark_is_no_part_of_the_grid(self, tmp_path: Path) -> None:
        assert self.loaded(tmp_path, self.AXES, "utf-8-sig").name == "g"

    @pytest.mark.parametrize(
        ("text", "part"),
        [
            ("seed = [0]\n", "unknown key 'seed'. Did you mean 'seeds'?"),
            ("[resources]\ncpus = 2\n", "unknown key 'cpus' in resources. Did you mean 'cpu'?"),
            ('[data.shapes]\nroot = "/x"\nroots = "/x"\n', "unknown key 'roots' in data.shapes. Did you mean 'root'?"),
            (
                "[set]\n'train.lr' = [1, 2]\n",
                "set.train.lr: it should be a number, a text, true or false; put values to",
            ),
            ("[set]\n'train.lr' = inf\n", "set.train.lr: it should be finite (got inf)"),
            ("[set]\nepochs = 1\n", "unknown setting 'epochs' in [set]. Did you mean 'train.epochs'?"),
            ("[set]\n'model.image.sise' = 1\n", "Did you mean 'model.image.size'?"),
        ],
    )
    def test_a_mistake_is_a_short_line_with_the_nearest_name(self, text: str, part: str, tmp_path: Path) -> None:
        with pytest.raises(UserError) as caught:
            self.loaded(tmp_path, self.AXES + text)
        assert part in str(caught.value)
        assert len(str(caught.value)) < 800
        assert "\n" not in str(caught.value)

    @pytest.mark.parametrize("field", ["set", "sweep", "data", "weights", "resources", "reliability"])
    def test_a_value_in_the_place_of_a_table_is_named(self, field: str, tmp_path: Path) -> None:
        with pytest.raises(UserError, match=rf"{field}: it should be .* \(got 3\)"):
            self.loaded(tmp_path, self.AXES + f"{field} = 3\n")
        with pytest.raises(UserError, match=rf"{field}: it should be .* \(got 3\)"):
            load(str(tmp_path / "grid.toml"), ["train.epochs=1", "resources.cpu=1"], roots=["/x"], weights=["x=/x"])

    def test_an_override_in_the_place_of_a_value_is_named(self) -> None:
        with pytest.raises(UserError, match=r"resources\.cpu: it should be a whole number"):
            load("demo", ["resources.cpu=1", "resources.cpu.x=1"])

    def test_a_key_of_another_encoder_is_named_with_the_keys_of_this_one(self) -> None:
        with pytest.raises(
            UserError, match=r"unknown key 'size' in recipe 'fc-bow': model\.image\.linear\. Known: pooling"
        ):
            expand(load("demo", ["recipes=fc-bow", "model.image.size=16"]))

    @pytest.mark.parametrize(
        ("overrides", "message"),
        [
            (["recipes=fc-bigru", "model.scorer.kind=bfan"], r"model\.scorer\.bfan\.focal: it is missing"),
            (
                ["recipes=fc-bigru", "model.image.pooling=none"],
                "pooling = none needs a scorer that reads sets, e.g. scan",
            ),
            (
                ["recipes=fc-bigru", "model.image.pool_balance=2"],
                r"pool_balance: it should be a number from 0 to 1, 'learnt' or 'random' \(got 2\)$",
            ),
            (["recipes=vsepp-r152", "model.image.head=foo"], r"head: .*'residual-mlp' or 'none' \(got 'foo'\)$"),
            (
                ["recipes=scan-t2i", "model.text.pooling=max"],
                "scorer scan reads sets of vectors: set model.text.pooling",
            ),
            (["recipes=scan-t2i", "model.text.encoder=gru"], "set model.text.encoder = bigru"),
            (
                ["recipes=scan-t2i", "model.scorer.lse_sharpness=5"],
                "has no effect in this grid: it needs pooling = lse",
            ),
            (
                ["recipes=scan-t2i", "model.scorer.focal=equal"],
                r"unknown key 'focal' in .*model\.scorer\.scan\. Known: s",
            ),
        ],
        ids=str,
    )
    def test_a_scorer_and_encoders_that_do_not_fit_are_one_message(self, overrides: list[str], message: str) -> None:
        with pytest.raises(UserError, match=message):
            expand(load("flickr8k", overrides))

    def test_another_scorer_brings_its_own_settings(self) -> None:
        grid = load("flickr8k", ["recipes=scan-t2i", "model.scorer.kind=bfan", "model.scorer.focal=prob"])
        assert expand(grid)[0].trials[0].settings.model.scorer == BfanSettings(kind="bfan", focal="prob")


@every("name", ["../../x", "a/b", "my data", "x\x1b[31m", "x\n", "", ".hidden", "données", "x" * 81])
def test_a_name_that_a_path_or_a_terminal_would_take_otherwise_is_refused(name: str) -> None:
    for content in ({"datasets": [name], "data": {name: {"root": "/data"}}}, {"name": name}):
        with pytest.raises(UserError, match="a name begins with a letter or digit"):
            checked({**MINIMAL, **content})


@every("changes", ["", "../x", "a b", "x\n", "x@y", "é"])
def test_behind_the_at_of_a_name_stands_what_a_shell_and_a_file_system_take(changes: str) -> None:
    with pytest.raises(UserError, match="after the @"):
        checked({**MINIMAL, "name": f"g@{changes}"})
