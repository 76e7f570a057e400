"""Expansion: every combination once, in an order that fills all cells at one pace."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from goalgrid.grid.errors import UserError
from goalgrid.grid.expansion import chains, expand, once, select, trials_of
from goalgrid.grid.gridfile import load
from goalgrid.grid.identity import trial_id
from goalgrid.grid.objectives.goal_matrix import GOAL
from goalgrid.grid.settings.text_encoders import BiGruSettings


def test_the_demo_has_15_cells_and_45_trials() -> None:
    cells = expand(load("demo"))
    assert [cell.objective for cell in cells] == list(GOAL)
    assert len(trials_of(cells)) == 45


def test_first_seeds_come_first() -> None:
    seeds = [trial.settings.seed for trial in trials_of(expand(load("demo")))]
    assert seeds == sorted(seeds)


def test_a_parent_comes_before_those_that_start_from_it() -> None:
    found = trials_of(expand(load("goal-table3-coco", ["sweep.objective.tau=[1, 10]"])))
    place = {trial.id: number for number, trial in enumerate(found)}
    started = [trial for trial in found if trial.parents]
    assert started
    assert all(place[parent] < place[trial.id] for trial in started for parent in trial.parents)


def test_cells_without_the_swept_parameter_share_their_trials() -> None:
    cells = expand(load("demo", ["sweep.objective.tau=[1, 10]", 'objectives=["con_con","con_nca"]', "seeds=[0]"]))
    assert len(cells) == 4
    assert len(trials_of(cells)) == 3
    taus = {(cell.objective, cell.swept) for cell in once(cells)}
    assert taus == {("con_con", ()), *(("con_nca", (("objective.tau", tau),)) for tau in (1, 10))}


@pytest.mark.parametrize(
    ("recipe", "objective", "sweeps", "trials"),
    [
        (
            "fc-bigru",
            "con_con",
            ('sweep.model.text.pooling=["gpo","mean","kmax"]', "sweep.model.text.pool_k=[2,3,9]"),
            5,
        ),
        ("fc-bow", "unified", ("sweep.train.warmup_epochs=[0,1]", "sweep.train.lr=[1e-3,1e-4]"), 2),
        ("fc-bow", "sct", ('sweep.objective.easy=["hinge","softmax"]', "sweep.objective.tau=[1,5]"), 3),
        ("fc-bow", "con_nca", ('sweep.objective.variant=["paper","released"]', "sweep.objective.tau=[1,5]"), 2),
        ("fc-bow", "con_cir", ('sweep.objective.variant=["paper","released"]', "sweep.objective.tau=[1,5]"), 4),
    ],
    ids=[
        "pool_k without kmax",
        "warm-up without mining",
        "tau without softmax",
        "same in both variants",
        "not the same",
    ],
)
def test_cells_that_do_not_read_a_swept_setting_share_their_trials(
    recipe: str, objective: str, sweeps: tuple[str, ...], trials: int
) -> None:
    grid = load("flickr8k", [f'recipes=["{recipe}"]', f'objectives=["{objective}", "triplet-hn"]', *sweeps])
    cells = [cell for cell in expand(grid) if cell.objective == objective]
    assert len(trials_of(cells)) == trials


@pytest.mark.parametrize(
    ("override", "lacking"),
    [
        ("model.text.pool_k=3", "model.text.pool_k has no effect in this grid: it needs pooling = kmax"),
        ("sweep.model.text.pool_k=[3,5]", "it needs pooling = kmax"),
        ("train.image_lr_factor=0.1", "it needs an image backbone that learns"),
        ("sweep.objective.k=[2,3]", "objective.k has no effect in this grid: it needs objective.mining = hardest"),
    ],
)
def test_a_setting_that_no_trial_reads_is_refused(override: str, lacking: str) -> None:
    with pytest.raises(UserError, match=re.escape(lacking)):
        expand(load("flickr8k", [override, "objective.mining=all"]))


def test_a_value_that_stands_there_anyway_may_be_set() -> None:
    plain = trials_of(expand(load("flickr8k")))
    assert trials_of(expand(load("flickr8k", ["model.text.pool_k=5", "train.image_lr_factor=1.0"]))) == plain


def test_a_share_of_noise_is_refused_from_1_on() -> None:
    with pytest.raises(UserError, match=r"dataset\.noise: it should be below 1.*1\.0"):
        expand(load("flickr8k", ["dataset.noise=1.0"]))
    plain, noisy = (expand(load("flickr8k", [f"dataset.noise={share}"])) for share in (0.0, 0.4))
    assert [trial.id for trial in trials_of(plain)] == [trial.id for trial in trials_of(expand(load("flickr8k")))]
    assert not {trial.id for trial in trials_of(plain)} & {trial.id for trial in trials_of(noisy)}


def test_a_ranker_comes_first_and_is_part_of_identity() -> None:
    words = 'objectives=["aoq"]', "train.ranker=cnn-gru", "seeds=[0,1]"
    trials = trials_of(expand(load("demo", ['recipes=["cnn-bow"]', *words])))
    assert [trial.id for trial in trials] == [trial_id(trial.settings) for trial in trials]
    ranking, ranked = trials[::2], trials[1::2]
    assert [(trial.shared.recipe, trial.shared.objective.name) for trial in ranking] == [("cnn-gru", "triplet-hn")] * 2
    assert [trial.settings.ranker for trial in ranked] == [trial.id for trial in ranking]
    assert all(trial.settings.starts_from is None and trial.settings.ranker is None for trial in ranking)
    assert [[trial.id for trial in chain] for chain in chains(trials)] == [
        [first.id, then.id] for first, then in zip(ranking, ranked, strict=True)
    ]
    for part in (trials, ranked, ranking):  # those that rank are done, or nothing is ranked
        assert len(chains(part)) == 2
    both = expand(load("demo", ['recipes=["cnn-bow","cnn-gru"]', *words, 'objectives=["aoq","triplet-hn"]']))
    assert len(trials_of(both)) == 2 * 4
    assert {trial.id for trial in trials} <= {trial.id for trial in trials_of(both)}


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((), "aoq: needs either train.ranker = RECIPE, .* or dataset.candidates = FOLDER"),
        (("train.ranker=cnn-bow", "dataset.candidates=ranked"), r"or dataset\.candidates = FOLDER, not both"),
        (("train.ranker=cnn-bov",), "unknown recipe 'cnn-bov' in train.ranker. Did you mean 'cnn-bow'"),
        (("train.ranker=cnn-bow", "train.ranker_objective=aoq"), "'aoq' in train.ranker_objective"),
        (("train.ranker=scan-tiny",), "a ranker must be a single-stage recipe that embeds an image as one vector"),
    ],
)
def test_a_ranker_that_cannot_rank_is_refused(words: tuple[str, ...], message: str) -> None:
    with pytest.raises(UserError, match=message):
        expand(load("demo", ['objectives=["aoq"]', *words]))
    with pytest.raises(UserError, match=r"train\.ranker has no effect in this grid"):
        expand(load("demo", ["train.ranker=cnn-bow"]))


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ("meta-spn", "model.networks=twins"),
            "frozen-bow with meta-spn: objective 'meta-spn' needs a meta batch for a single network",
        ),
        (
            ("aoq", "recipes=xvlm-tiny", "train.ranker=cnn-bow"),
            "xvlm-tiny with aoq: objective 'aoq' needs negatives from outside the batch, which fusion x-vlm",
        ),
    ],
)
def test_an_objective_that_reads_more_than_the_batch_refuses_models_that_cannot(
    words: tuple[str, ...], message: str
) -> None:
    with pytest.raises(UserError, match=message):
        expand(load("demo", [f"objectives={words[0]}", *words[1:]]))


@pytest.mark.parametrize(
    ("words", "libraries"),
    [
        (["recipes=cnn-bow"], {"pillow"}),
        (["datasets=flickr30k", "recipes=fc-bow"], set()),
        (["datasets=flickr30k", "recipes=fc-bow", "dataset.words=nltk"], {"nltk"}),
        (["datasets=flickr30k", "recipes=fc-bow", "objectives=ncr"], {"scikit-learn"}),
        (["datasets=flickr30k", "recipes=clip-vit-b32"], {"pillow", "transformers"}),
    ],
)
def test_a_trial_loads_the_libraries_that_its_settings_need(words: list[str], libraries: set[str]) -> None:
    assert {trial.shared.libraries for trial in trials_of(expand(load("demo", words)))} == {frozenset(libraries)}


def test_the_released_variant_brings_its_own_defaults() -> None:
    cells = expand(load("demo", ["objective.variant=released", 'objectives=["con_con","sig-ms_cir"]']))
    parameters = [cell.trials[0].settings.objective.parameters for cell in cells]
    assert parameters[0]["margin"] is None
    assert parameters[1]["offset"] == 0.5
    assert parameters[1]["empty"] == 0.0


def test_another_encoder_brings_its_own_settings() -> None:
    grid = load("demo", ["model.text.pooling=max", "model.text.encoder=bigru"])
    text = expand(grid)[0].trials[0].settings.model.text
    assert text == BiGruSettings(encoder="bigru", pooling="max")


@given(st.sets(st.sampled_from(GOAL), min_size=1), st.sets(st.integers(0, 99), min_size=1, max_size=5))
def test_size_is_the_product_of_the_axes(objectives: set[str], seeds: set[int]) -> None:
    names = ",".join(f'"{name}"' for name in sorted(objectives))
    cells = expand(load("demo", [f"objectives=[{names}]", f"seeds={sorted(seeds)}"]))
    assert len(trials_of(cells)) == len(objectives) * len(seeds)


def test_only_selects_by_patterns() -> None:
    cells = expand(load("demo"))
    assert len(select(cells, "objective=*_cir seed=0")) == 5
    assert len(select(cells, "objective=sig-ms_*")) == 9
    assert len(select(cells, "objective=*_cir seed=0 | objective=con_* seed=0 | seed=1")) == 5 + 2 + 15
    with pytest.raises(UserError, match="--only 'seed=9' names none"):
        select(cells, "seed=0 | seed=9")


@pytest.mark.parametrize(
    ("only", "message"),
    [
        ("seeed=0", "Did you mean 'seed'"),
        ("seed", "is not AXIS=PATTERN"),
        ("seed=9", r"names none of the grid's trials\.$"),
        (
            "seed=0,1",
            r"names none of the grid's trials\. A pattern is as of file names, without commas: 'seed=\[0-2\]'",
        ),
        ("seed=0 objective=sig_cri", r"names none of the grid's trials\. Did you mean 'objective=sig_cir'\?"),
    ],
)
def test_a_filter_that_cannot_be_meant_is_an_error(only: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        select(expand(load("demo")), only)


def test_a_filter_may_ask_for_what_only_some_trials_have() -> None:
    cells = expand(load("demo", ['objectives=["con_con"]', "seeds=[0,1]"]))
    first, second = trials_of(cells)
    also = {"failure": {second.id: "killed"}}
    assert select(cells, "failure=*", also) == [second]
    assert select(cells, "seed=0", also) == [first]
    with pytest.raises(UserError, match="Did you mean 'failure'"):
        select(cells, "failur=killed", also)


def test_what_replicas_cannot_share_is_said_once_of_each_recipe_whatever_its_objectives() -> None:
    named = 'objectives=["con_con","lin_con"]', 'recipes=["fc-bow","xvlm-tiny","vsrn-tiny"]', "resources.replicas=2"
    with pytest.raises(UserError) as refused:
        expand(load("demo", named))
    lines = [line for line in str(refused.value).splitlines() if "resources.replicas = 2 cannot give" in line]
    assert [line.strip(" -").split(":")[0] for line in lines] == ["xvlm-tiny", "vsrn-tiny"]


def test_an_objective_that_replicas_cannot_have_is_named_with_its_recipe() -> None:
    named = 'objectives=["aoq","con_con"]', 'recipes="fc-bow"', 'train.ranker="fc-bow"', "resources.replicas=2"
    with pytest.raises(
        UserError, match=r"fc-bow with aoq: objective 'aoq' needs .*resources\.replicas = 2 cannot give"
    ):
        expand(load("demo", named))
