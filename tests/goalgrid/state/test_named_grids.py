"""Several grids in one command: each has its folder of results, and a trial that grids share is trained once."""

import json
from pathlib import Path

import pytest
import torch

import goalgrid as python
from goalgrid.grid.errors import UserError
from goalgrid.grid.store.home import Home
from goalgrid.state import named_grids

from ...conftest import SMALL, Goalgrid, swapped
from ..conftest import Verb

FAST = 'extends = "demo"\nobjectives = ["con_con"]\n[set]\n' + "".join(
    f"{setting}\n" for setting in SMALL[1::2] if setting.startswith(("train.", "model."))
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, more in (("one", "seeds = 0"), ("two", "seeds = [0, 1]")):
        (tmp_path / f"{name}.toml").write_text(
            f'name = "{name}"\nrecipes = "cnn-bow"\n{more}\n{FAST}', encoding="utf-8"
        )
    return tmp_path


def test_shared_trials_are_trained_once_and_each_grid_has_its_folder(goalgrid: Goalgrid, folder: Path) -> None:
    grids, runs = ("one.toml", "two.toml"), folder / "runs"
    planned = goalgrid("plan", *grids, runs=runs, folder=folder)
    assert planned.stdout.endswith("together: 2 trials, 0 done; 1 trial shared between grids\n"), planned.stderr
    run = ("run", *grids, "--only", "seed=0", "--here", "--mlflow-uri", "")
    finished = goalgrid(*run, runs=runs, folder=folder)
    assert finished.returncode == 0, finished.stderr
    assert finished.stderr.count("\ndone ") == 1
    assert "one: 1 trial: 1 done" in finished.stderr
    assert "two: 2 trials: 1 done, 1 planned" in finished.stderr
    assert sorted(path.name for path in (runs / "grids").iterdir()) == ["one", "two"]
    status = goalgrid("status", "one", "two", "--json", runs=runs)
    assert status.returncode == 3
    assert {name: found["states"]["done"] for name, found in json.loads(status.stdout).items()} == {"one": 1, "two": 1}
    again = goalgrid("resume", "[ot]*", "--only", "seed=0", "--here", "--mlflow-uri", "", runs=runs)
    assert again.returncode == 0, again.stderr
    one = goalgrid("plan", *grids, "--only", "seed=1", runs=runs, folder=folder)
    assert "left out: grid 'one': --only 'seed=1' names none of the grid's trials." in one.stderr
    assert "two: 2 trials" in one.stdout
    wrong = goalgrid("run", *grids, "--only", "seed=2", "--here", "--mlflow-uri", "", runs=runs, folder=folder)
    assert wrong.returncode == 2
    assert "error: grids 'one', 'two': --only 'seed=2' names none of the grid's trials." in wrong.stderr
    assert "training" not in wrong.stderr


def test_a_pattern_stands_for_shipped_grids_and_each_takes_its_own_data(tmp_path: Path) -> None:
    home, roots = Home(tmp_path), ["coco=/c", "flickr30k=/f"]
    found = named_grids.grids_to_train(["goal-table3*", "goal-table3-coco"], home, [], roots=roots, weights=[])
    assert {grid.name: [place.root for place in grid.data.values()] for grid in found} == {
        "goal-table3-coco": ["/c"],
        "goal-table3-f30k": ["/f"],
    }
    own = named_grids.grids_to_train(["goal-table3*"], home, ["datasets=mine"], roots=["mine=/m"], weights=[])
    assert [grid.data["mine"].root for grid in own] == ["/m", "/m"]


@pytest.mark.parametrize(
    ("sources", "roots", "said"),
    [
        (["goal-tabel3*"], [], "unknown shipped grid 'goal-tabel3*'"),
        (["demo", "goal-table3-coco"], ["/c"], "name the data set in that folder: --root DATASET=DIR"),
        (
            ["demo", "goal-table3-coco"],
            ["cocoo=/c"],
            "unknown data set 'cocoo' in --root cocoo=/c. Did you mean 'coco'",
        ),
        (["one.toml", "other/one.toml"], [], "two grids are both named 'one' and would share one results folder"),
    ],
)
def test_grids_that_cannot_be_meant_are_one_message(
    sources: list[str], roots: list[str], said: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "other").mkdir()
    changed = swapped((folder / "one.toml").read_text(encoding="utf-8"), "seeds = 0", "seeds = 1")
    (folder / "other" / "one.toml").write_text(changed, encoding="utf-8")
    monkeypatch.chdir(folder)
    with pytest.raises(UserError) as caught:
        named_grids.grids_to_train(sources, Home(folder / "runs"), [], roots=roots, weights=[])
    assert said in str(caught.value)


def test_two_grids_in_one_process_each_have_their_own_losses_of_one_name(folder: Path) -> None:
    """Both files are called losses.py, and both define `mine`; the grids are used in turn."""
    loaded, formulas = [], ("return t.s_neg", "return t.s_neg - t.s_pos")
    for name, formula in zip(("one", "two"), formulas, strict=True):
        (folder / name).mkdir()
        loss = f"import goalgrid\n\n\n@goalgrid.objective('mine')\ndef mine(t):\n    {formula}\n"
        (folder / name / "losses.py").write_text(loss, encoding="utf-8")
        content = swapped((folder / f"{name}.toml").read_text(encoding="utf-8"), '"con_con"', '"mine"')
        (folder / name / "g.toml").write_text(f'uses = "losses.py"\n{content}', encoding="utf-8")
        loaded.append(python.load(folder / name / "g.toml", runs=folder / "runs"))
    texts = [grid.plan().text for grid in [*loaded, *loaded]]
    assert texts[:2] == texts[2:]
    assert [len(grid.trials) for grid in loaded] == [1, 2]
    image, text = torch.nn.functional.normalize(torch.randn(2, 5, 4), dim=-1)
    values = [float(grid.objective("mine")(image, text)) for grid in loaded]
    assert values[0] - values[1] == pytest.approx(
        2 * float((image * text).sum()), abs=1e-4
    )  # s_pos, in both directions
    with pytest.raises(UserError, match=r"unknown objective 'mine'.*goalgrid\.load\(GRID\)\.objective\(NAME\)"):
        python.objectives.build("mine")


def test_a_number_of_seeds_is_said_to_be_one_seed(goalgrid: Goalgrid, folder: Path) -> None:
    planned = goalgrid("plan", "one.toml", "--set", "seeds=5", runs=folder / "runs", folder=folder)
    assert "note: seeds = 5 means the single seed 5. For 5 seeds: seeds = [0, 1, 2, 3, 4].\n" in planned.stderr
    assert "note:" not in goalgrid("plan", "two.toml", runs=folder / "runs", folder=folder).stderr


def test_a_file_called_like_a_shipped_grid_and_a_folder_that_is_not_there_are_said(verb: Verb, tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text('name = "demo"\nextends = "demo"\nseeds = [7]\n')
    planned = verb("plan", str(tmp_path / "mine.toml"), runs=Home(tmp_path))
    assert planned.stdout.startswith("demo: 15 trials")
    assert (
        "note: a shipped grid is also called demo; goalgrid plan, run and resume demo use the shipped one."
        in planned.stderr
    )
    assert (
        f"note: runs folder {tmp_path / 'none'} does not exist yet."
        in verb("status", "demo", runs=Home(tmp_path / "none")).stderr
    )
    assert "note:" not in verb("plan", "demo", runs=Home(tmp_path)).stderr
