"""A grid in Python says the same as the command line."""

import re
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest
from matplotlib.figure import Figure

import goalgrid
from goalgrid.api import LoadedGrid
from goalgrid.grid.expansion import expand, trials_of
from goalgrid.grid.gridfile import load
from goalgrid.grid.messages import LOGGER
from goalgrid.grid.store.home import Home, State

from ..conftest import LASTING, ROOT
from .conftest import PAIR, Verb
from .processes import running, wait_until

IDS = [trial.id for trial in trials_of(expand(load("demo", [word for word in PAIR if word != "--set"])))]


@pytest.fixture(scope="module")
def loaded(trained_pair: Home) -> LoadedGrid:
    return goalgrid.load("demo", trained_pair.path)


def test_importing_the_package_imports_nothing_heavy() -> None:
    heavy = "{'torch', 'ray', 'pandas', 'numpy', 'pyarrow', 'typer', 'pydantic'}"
    script = f"import sys, goalgrid; print(goalgrid.__version__, {heavy} & set(sys.modules))"
    finished = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert finished.stdout == f"{goalgrid.__version__} set()\n"


@pytest.mark.parametrize("name", goalgrid.PUBLIC)
def test_every_public_name_leads_somewhere(name: str) -> None:
    assert name in dir(goalgrid)
    assert getattr(goalgrid, name).__doc__


def test_a_name_that_is_not_public_is_an_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'lood'; it has "):
        goalgrid.lood  # noqa: B018  type: ignore[attr-defined]


def test_states_are_those_of_the_folders(loaded: LoadedGrid) -> None:
    assert loaded.trials == IDS
    assert loaded.states == dict.fromkeys(IDS, "done")


def test_the_status_is_that_of_the_verb(loaded: LoadedGrid, verb: Verb, trained_pair: Home) -> None:
    assert repr(loaded) == verb("status", "demo", runs=trained_pair).stdout.rstrip()


def test_a_plan_says_why_each_trial_would_be_trained(loaded: LoadedGrid) -> None:
    plan = loaded.plan("objective=con_con", force=True, trials=True)
    assert f"  {IDS[0]}  forced" in repr(plan).splitlines()
    assert plan.data["left"] == [IDS[0]]
    assert plan._repr_html_().startswith("<pre>demo: 2 trials: 2 done\n")


def test_records_have_settings_by_dotted_name(loaded: LoadedGrid) -> None:
    records = loaded.records()
    assert list(records.index) == IDS
    assert records["objective.tau"].isna().tolist() == [True, False]
    assert records["train.epochs"].tolist() == records["epochs"].tolist() == [2, 2]
    assert records["test_rsum"].between(0, 600).all()
    assert records["stale"].tolist() == ["", ""]


def test_the_table_is_that_of_the_verb(loaded: LoadedGrid, verb: Verb, trained_pair: Home) -> None:
    table = loaded.table(metric="r5")
    printed = verb("table", "demo", "--metric", "r5", "--format", "latex", runs=trained_pair).stdout
    assert table.text("latex").rstrip("\n") == printed.rstrip("\n")
    records = loaded.records()
    entries = table.to_pandas().query("metric == 'i2t_r5'")
    assert sorted(entries["mean"]) == sorted(records["test_i2t_r5"])
    assert "P^con" in repr(table)
    assert "<sup>con</sup>" in table._repr_html_()


def test_effects_are_those_of_the_verb(loaded: LoadedGrid, verb: Verb, trained_pair: Home) -> None:
    effects = loaded.effects(direction="i2t")
    printed = verb("effects", "demo", "--direction", "i2t", "--format", "markdown", runs=trained_pair).stdout
    assert effects._repr_markdown_().rstrip() == printed.rstrip()
    assert repr(effects).startswith("cnn-bow on shapes: Image")
    assert set(effects.to_pandas()["metric"]) == {"i2t_r1"}


def test_a_figure_shows_itself_and_is_written(loaded: LoadedGrid, tmp_path: Path) -> None:
    figure = loaded.figure("training")
    assert isinstance(figure.figure, Figure)
    assert figure._repr_png_().startswith(b"\x89PNG")
    assert figure.save(tmp_path / "training.svg").read_text(encoding="utf-8").startswith("<?xml")
    with pytest.raises(goalgrid.UserError, match="must end in"):
        figure.save(tmp_path / "training.gif")


def test_a_run_of_a_finished_grid_trains_nothing_and_keeps_the_table(pair: Home) -> None:
    before = {path: path.stat().st_mtime_ns for path in pair.path.glob("trials/*/done")}
    assert goalgrid.load("demo", pair.path).run(mlflow_uri="").states == dict.fromkeys(IDS, "done")
    assert {path: path.stat().st_mtime_ns for path in pair.path.glob("trials/*/done")} == before
    assert (pair.grid("demo").tables / "goal.md").exists()


@pytest.mark.parametrize(
    ("number", "code"),
    [
        pytest.param(signal.SIGINT, -signal.SIGINT, marks=pytest.mark.gate),
        pytest.param(signal.SIGTERM, -signal.SIGINT, marks=pytest.mark.slow),
    ],
)
def test_a_signal_ends_a_loop_over_grids_after_the_checkpoint(number: int, code: int, tmp_path: Path) -> None:
    home = Home(tmp_path / "runs")
    changes = [word for word in LASTING if word != "--set"] + ["train.epochs=500", 'objectives=["con_con"]']
    script = f"""
import goalgrid
for seed in (0, 1):
    grid = goalgrid.load("demo", {str(home.path)!r}, set=[*{changes}, f"seeds=[{{seed}}]"])
    grid.run(here=True, mlflow_uri="")
"""
    process = subprocess.Popen(
        [sys.executable, "-c", script], stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    try:
        wait_until(lambda: bool(running(home)), process)
        process.send_signal(number)
        _, talk = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == code, talk
    assert [folder.state() for folder in home.trials()] == [State.INTERRUPTED]
    assert home.trials()[0].latest().outcome() == "pre-empted"


@pytest.mark.parametrize(
    ("given", "name"),
    [({"seeds": [0, 1], "train.epochs": 1}, "demo@seeds=0+1,train.epochs=1"), (["seeds=[4]"], "demo@seeds=4")],
)
def test_a_grid_is_changed_by_values_or_by_words(
    given: dict[str, object] | list[str], name: str, tmp_path: Path
) -> None:
    assert goalgrid.load("demo", tmp_path, set=given).name == name


@pytest.mark.parametrize(
    ("mistake", "message"),
    [
        (lambda grid, empty: goalgrid.load("dmo", empty), "unknown grid 'dmo'. Did you mean 'demo'?"),
        (lambda grid, empty: goalgrid.load("demo", empty, set={"train.epoch": 1}), "Did you mean 'train.epochs'?"),
        (lambda grid, empty: goalgrid.load("demo", empty, root="x", set={"datasets": []}), "--root"),
        (lambda grid, empty: goalgrid.load("demo", empty).table(), "no trial is done. Start it: grid.run()"),
        (lambda grid, empty: grid.table(metric="r2"), "unknown metric 'r2'"),
        (lambda grid, empty: grid.effects(baseline="con"), "unknown objective 'con'"),
        (lambda grid, empty: grid.figure("trainin"), "Did you mean 'training'?"),
        (lambda grid, empty: grid.figure("training", block="fc"), "unknown block 'fc' of grid 'demo'. Known: cnn"),
        (lambda grid, empty: grid.effects(across="train.rl"), "unknown axis 'train.rl'"),
        (lambda grid, empty: grid.figure("training", quantities="val_rsm"), "Did you mean 'val_rsum'?"),
        (lambda grid, empty: grid.figure("examples"), "Figures of one trial: goalgrid figures GRID attention"),
        (lambda grid, empty: grid.plan("seed=9"), "names none of the grid's trials"),
    ],
)  # fmt: skip
def test_a_mistake_is_one_message(mistake, message: str, loaded: LoadedGrid, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(goalgrid.UserError) as error:
        mistake(loaded, tmp_path)
    assert message in str(error.value)
    assert error.value._render_traceback_() == [f"goalgrid.UserError: {error.value}"]


def test_the_page_runs(pair: Home, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    """All code of docs/python.md, in order, beside a runs folder where `demo` is done."""
    monkeypatch.chdir(pair.path.parent)
    request.addfinalizer(partial(LOGGER.setLevel, LOGGER.level))  # the page silences progress
    page = (ROOT / "docs" / "python.md").read_text(encoding="utf-8")
    names: dict[str, object] = {}
    for block in re.findall(r"```python\n(.*?)```", page, re.DOTALL):
        exec(block, names)
    assert Path("training.pdf").exists()
    assert isinstance(names["other"], LoadedGrid)
    assert names["other"].name == "demo@seeds=0+1,train.epochs=2"
