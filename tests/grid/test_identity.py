"""Identity: same settings, same id; other settings, another id; and seeds that nobody else's axis moves."""

from typing import Annotated

import pytest
from hypothesis import given
from hypothesis import strategies as st

from grid.expansion import Trial, expand, trials_of
from grid.fields import IdentityDefault, Settings
from grid.gridfile import Grid, load
from grid.identity import canonical, derived_seed, digest, trial_id

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
    assert trials("seeds=[0]", "train.epochs=10")[0].id == "shapes_cnn-bow_con_con_s0-181bc001"


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


@pytest.mark.parametrize("operational", ["resources.cpu=2", "resources.workers=7", "data.shapes.root=/elsewhere"])
def test_where_and_with_what_it_runs_is_no_identity(operational: str) -> None:
    assert [trial.id for trial in trials(operational)] == [trial.id for trial in trials()]


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


def test_ids_survive_the_grid_file(tmp_path_factory: pytest.TempPathFactory) -> None:
    path = tmp_path_factory.mktemp("grid") / "grid.toml"
    path.write_text(load("demo").to_toml())
    reloaded: Grid = load(str(path))
    assert [t.id for t in trials_of(expand(reloaded))] == [t.id for t in trials()]
    assert all(trial_id(t.settings) == t.id for t in trials())
