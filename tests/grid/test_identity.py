"""Identity: same settings, same id; other settings, another id; and seeds that nobody else's axis moves."""

from pathlib import Path
from random import Random
from typing import Annotated

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from goalgrid.grid.catalog import names
from goalgrid.grid.errors import UserError
from goalgrid.grid.expansion import Trial, expand, trials_of
from goalgrid.grid.gridfile import Grid, load
from goalgrid.grid.identity import canonical, derived_seed, digest, trial_id
from goalgrid.grid.objectives import OURS, needs
from goalgrid.grid.settings import TrialSettings
from goalgrid.grid.settings.base import IdentityDefault, Settings
from tests.cases import every
from tests.grid import golden_ids

from ..conftest import checked

GOLDEN = Path(golden_ids.__file__).with_suffix(".txt")

JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**9), 10**9)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=12,
)


def trials(*overrides: str) -> list[Trial]:
    return trials_of(expand(load("demo", overrides)))


def test_the_id_of_a_known_trial_never_changes() -> None:
    """Golden: if this fails, every result that users have is orphaned."""
    known = trials('recipes=["cnn-bow"]', "objective.variant=paper", "seeds=[0]", "train.epochs=10")[0]
    assert known.id == "shapes_cnn-bow_con_con_s0-181bc001"


def test_the_ids_of_all_that_is_shipped_never_change() -> None:
    """Of recipes, objectives, data sets and grids; a setting, a default or an identity default that moves one fails."""
    known, now = set(GOLDEN.read_text().splitlines()), set(golden_ids.lines())
    assert (sorted(known - now), sorted(now - known)) == ([], []), f"where an id has to move: {golden_ids.__doc__}"


@every("preset", names("presets"))
def test_an_expanded_trial_has_the_id_of_its_settings(preset: str) -> None:
    ranked = ', "aoq"' if preset.endswith("aoq") else ""  # its train.ranker needs the objective
    wanted = f'objectives=["con_con", "sig-ms_cir", "unified", "selhn"{ranked}]'
    sweeps = "sweep.train.lr=[1e-3]", "sweep.dataset.max_words=[20, 60]"
    found = trials_of(expand(load(preset, [*sweeps, wanted, "exclude=[]"])))
    assert [trial.id for trial in found] == [trial_id(trial.settings) for trial in found]


@given(st.dictionaries(st.text(), JSON, min_size=2))
def test_id_ignores_key_order_but_not_values(content: dict[str, object]) -> None:
    backwards = dict(reversed(content.items()))
    assert digest(content) == digest(backwards)
    assert digest(content) != digest({**content, "one more": 1})


def test_minus_zero_is_zero() -> None:
    assert digest({"a": -0.0}) == digest({"a": 0.0})


def test_whole_floats_and_integers_are_one_setting() -> None:
    assert trials("objective.tau=3")[1].id == trials("objective.tau=3.0")[1].id


def test_small_learning_rates_get_different_ids() -> None:
    assert trials("train.lr=1e-10")[0].id != trials("train.lr=2e-10")[0].id


@every(
    "operational", ["resources.cpu=2", "resources.workers=7", "data.flickr8k.root=/elsewhere", "train.trace_every=3"]
)
def test_where_and_with_what_it_runs_is_no_identity(operational: str) -> None:
    assert [trial.id for trial in trials("datasets=flickr8k", operational)] == [
        trial.id for trial in trials("datasets=flickr8k")
    ]


def test_what_is_no_identity_is_no_axis() -> None:
    with pytest.raises(UserError, match=r"train\.trace_every does not change trial ids, so it cannot be swept"):
        trials("sweep.train.trace_every=[1, 10]")


def test_every_trial_has_its_own_id() -> None:
    assert len({trial.id for trial in trials("sweep.train.lr=[1e-3, 1e-4]")}) == 90


def test_a_field_added_later_keeps_old_ids_while_it_has_its_old_value() -> None:
    class Old(Settings):
        lr: float = 0.1

    class New(Settings):
        lr: float = 0.1
        momentum: Annotated[float, IdentityDefault(0.9)] = 0.5

    assert canonical(Old()) == canonical(New(momentum=0.9))
    assert canonical(Old()) != canonical(New())


def test_objectives_and_sweeps_share_weights_and_batches() -> None:
    swept = trials("sweep.train.lr=[1e-3, 1e-4]", "seeds=[0]")
    assert len({derived_seed(trial.settings, "weights") for trial in swept}) == 1


def test_seeds_differ_by_seed_and_purpose_and_stay_when_an_axis_grows() -> None:
    seeds = {(trial.settings.seed, derived_seed(trial.settings, "weights")) for trial in trials()}
    assert len(seeds) == 3
    grown = {(trial.settings.seed, derived_seed(trial.settings, "weights")) for trial in trials("seeds=[0,1,2,3]")}
    assert seeds < grown
    settings = trials()[0].settings
    assert derived_seed(settings, "weights") != derived_seed(settings, "dropout")


FEW = settings(max_examples=25)
"""Grids are expanded and validated each time."""

OBJECTIVES = st.lists(
    st.sampled_from([name for name in OURS if "offline-negatives" not in needs(name)]),
    min_size=1,
    max_size=6,
    unique=True,
)
SEEDS = st.lists(st.integers(0, 99), min_size=1, max_size=5, unique=True)
RECIPES = st.lists(st.sampled_from(["cnn-bow", "vsepp-r152-tiny", "vse-inf-wsl-tiny"]), min_size=1, unique=True)


def of(objectives: list[str], seeds: list[int], recipes: list[str], **further: object) -> dict[str, TrialSettings]:
    """Trials by id, of a grid whose keys stand in this order."""
    content = {"objectives": objectives, "seeds": seeds, "recipes": recipes, "datasets": ["shapes"], "name": "any"}
    return {trial.id: trial.settings for trial in trials_of(expand(checked(content | further)))}


def derived(settings: TrialSettings) -> list[int]:
    return [derived_seed(settings, purpose) for purpose in ("weights", "batches", "dropout")]


@FEW
@given(OBJECTIVES, SEEDS, RECIPES, st.randoms())
def test_ids_do_not_depend_on_the_order_of_keys_or_values(
    objectives: list[str], seeds: list[int], recipes: list[str], random: Random
) -> None:
    overrides = [("train.epochs", 3), ("train.lr", 1e-3), ("train.batch_size", 7)]
    sweep = [("model.dim", [8, 16]), ("train.clip_norm", [1.0, 2.0])]
    whole = of(objectives, seeds, recipes, set=dict(overrides), sweep=dict(sweep))
    for some in (objectives, seeds, recipes, overrides, sweep):
        random.shuffle(some)
    assert of(objectives, seeds, recipes, sweep=dict(sweep), set=dict(overrides)) == whole


def test_what_ncrs_code_does_otherwise_moves_no_trial_of_its_equation() -> None:
    (found,) = of(["ncr"], [0], ["cnn-bow"])
    assert found == "shapes_cnn-bow_ncr_s0-2963f1bc"
    (released,) = of(["ncr"], [0], ["cnn-bow"], set={"objective.variant": "released"})
    assert released != found


@FEW
@given(OBJECTIVES, SEEDS, RECIPES, OBJECTIVES, SEEDS, RECIPES)
def test_what_is_added_to_an_axis_moves_no_other_trial(
    objectives: list[str],
    seeds: list[int],
    recipes: list[str],
    more_objectives: list[str],
    more_seeds: list[int],
    more_recipes: list[str],
) -> None:
    before = of(objectives, seeds, recipes)
    grown = [list(dict.fromkeys([*more, *some])) for some, more in
             ((objectives, more_objectives), (seeds, more_seeds), (recipes, more_recipes))]  # fmt: skip
    after = of(*grown)  # type: ignore[arg-type]
    assert before.items() <= after.items()
    assert all(derived(after[name]) == derived(found) for name, found in before.items())


@FEW
@given(
    st.fixed_dictionaries({}, optional={
        "resources": st.fixed_dictionaries({}, optional={
            "cpu": st.integers(1, 64),
            "gpu": st.sampled_from([0, 0.25, 1, 2]),
            "concurrency": st.integers(1, 64),
            "workers": st.integers(1, 64),
            "features": st.sampled_from(["/cache", "~/cache"]),
            "custom": st.dictionaries(st.sampled_from(["disk", "a100"]), st.floats(0.001, 8)),
        }),
        "reliability": st.fixed_dictionaries({}, optional={
            "checkpoint_minutes": st.floats(0.1, 600),
            "checkpoint_steps": st.integers(1, 10**6),
            "stall_minutes": st.floats(0.1, 600),
            "grace_seconds": st.floats(0, 600),
            "folder_seconds": st.floats(0, 600),
        }),
        "data": st.fixed_dictionaries({"shapes": st.fixed_dictionaries({"root": st.sampled_from(["/a", "b/c"])})}),
        "weights": st.dictionaries(st.sampled_from(["bert", "resnet"]), st.sampled_from(["/a", "b/c"])),
    })
)  # fmt: skip
def test_paths_resources_and_reliability_are_no_identity(operational: dict[str, object]) -> None:
    axes = ["con_con", "sig-ms_cir"], [0, 1], ["cnn-bow"]
    assert of(*axes, **operational) == of(*axes)


@FEW
@given(
    st.lists(st.tuples(st.sampled_from([1, 2, 3]), st.floats(1e-8, 1), st.integers(2, 512)), min_size=2, unique=True)
)
def test_distinct_settings_have_distinct_ids(points: list[tuple[int, float, int]]) -> None:
    ids = set[str]()
    for epochs, lr, batch in points:
        changed = {"train.epochs": epochs, "train.lr": lr, "train.batch_size": batch}
        ids |= of(["sig_nca"], [0], ["cnn-bow"], set=changed).keys()
    assert len(ids) == len(points)


def test_ids_survive_the_grid_file(tmp_path_factory: pytest.TempPathFactory) -> None:
    path = tmp_path_factory.mktemp("grid") / "grid.toml"
    path.write_text(load("demo").to_toml())
    reloaded: Grid = load(str(path))
    assert [t.id for t in trials_of(expand(reloaded))] == [t.id for t in trials()]
    assert all(trial_id(t.settings) == t.id for t in trials())
