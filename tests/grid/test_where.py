"""[[where]]: settings of some cells; and cells that nobody needs once others are left out."""

import tomllib
from pathlib import Path

import pytest

from goalgrid.grid.document import Text, content_of
from goalgrid.grid.errors import UserError
from goalgrid.grid.expansion import Cell, expand, trials_of
from goalgrid.grid.gridfile import Grid, check, load

BASE = """
name = "mixed"
datasets = ["shapes", "flickr8k"]
recipes = ["fc-bow", "fc-gru"]
objectives = ["con_con", "unified", "con_nca"]
seeds = [0, 1]

[set]
"train.epochs" = 3

[sweep]
"train.lr" = [1e-3, 1e-4]
"""

ENTRIES = """
[[where]]
recipe = "fc-*"
objective = "unified"
set."objective.gamma" = 20.0

[[where]]
dataset = "flickr8k"
recipe = "fc-gru"
set.train.epochs = 5

[[where]]
"train.lr" = 1e-4
set."train.clip_norm" = 1.0
"""


def grid_of(tmp_path: Path, text: str, *overrides: str) -> Grid:
    path = tmp_path / "mixed.toml"
    path.write_text(text, encoding="utf-8")
    return load(str(path), overrides)


def settings(cell: Cell) -> tuple[int, float, object]:
    shared = cell.trials[0].shared
    return shared.train.epochs, shared.train.clip_norm, shared.objective.parameters.get("gamma")


def test_a_cell_has_the_settings_of_the_entries_that_it_fits(tmp_path: Path) -> None:
    cells = expand(grid_of(tmp_path, BASE + ENTRIES))
    assert len(cells) == 24
    for cell in cells:
        epochs = 5 if (cell.dataset, cell.recipe) == ("flickr8k", "fc-gru") else 3
        clip = 1.0 if cell.axes["train.lr"] == 1e-4 else 2.0
        gamma = 20.0 if cell.objective == "unified" else None
        assert settings(cell) == (epochs, clip, gamma), cell


def test_ids_are_those_of_a_grid_that_sets_the_same_for_all(tmp_path: Path) -> None:
    of_some = {trial.id for trial in trials_of(expand(grid_of(tmp_path, BASE + ENTRIES)))}
    alone = BASE.replace('"shapes", ', "").replace('"fc-bow", ', "").replace("= 3", "= 5").replace(", 1e-4", "")
    of_all = {trial.id for trial in trials_of(expand(grid_of(tmp_path, alone, "objective.gamma=20.0")))}
    assert len(of_all) == 6
    assert of_all <= of_some
    plain = {trial.id for trial in trials_of(expand(grid_of(tmp_path, BASE)))}
    assert len(plain & of_some) == 2 * 2 * 3, "objectives but unified at 1e-3, without flickr8k's fc-gru"


def test_the_saved_grid_is_the_same_grid(tmp_path: Path) -> None:
    grid = grid_of(tmp_path, BASE + ENTRIES)
    again = check(content_of(Text("saved", tomllib.loads(grid.to_toml()))))
    assert again == grid
    assert expand(again) == expand(grid)


def test_what_the_command_line_sets_counts_for_all_cells(tmp_path: Path) -> None:
    cells = expand(grid_of(tmp_path, BASE + ENTRIES, "train.epochs=1", "seeds=[0]"))
    assert {cell.trials[0].shared.train.epochs for cell in cells} == {1}
    assert {settings(cell)[2] for cell in cells} == {None, 20.0}


def test_a_grid_that_extends_it_overrides_it(tmp_path: Path) -> None:
    (tmp_path / "base.toml").write_text(BASE + ENTRIES, encoding="utf-8")
    over = 'extends = "base.toml"\nname = "over"\n[set]\n"objective.gamma" = 40.0\n'
    gammas = {settings(cell)[2] for cell in expand(grid_of(tmp_path, over))}
    assert gammas == {None, 40.0}


WRONG = {
    "two values": (
        '[[where]]\ndataset = "*8k"\nset."train.epochs" = 4\n[[where]]\nrecipe = "fc-gru"\nset.train.epochs = 5\n',
        r"where\[0\] and where\[1\] set train.epochs to 4 and 5 for fc-gru by con_con on flickr8k",
    ),
    "no cell": (
        '[[where]]\nrecipe = "fc-grv"\nset."train.epochs" = 4\n',
        r"unknown recipe 'fc-grv' in where\[0\], which matches no cell. Did you mean 'fc-gru'",
    ),
    "an axis": (
        '[[where]]\nrecpe = "fc-gru"\nset."train.epochs" = 4\n',
        r"unknown axis 'recpe' in where\[0\]. Did you mean 'recipe'",
    ),
    "never together": (
        'exclude = [{ dataset = "shapes", recipe = "fc-gru" }]\n'
        '[[where]]\ndataset = "shapes"\nrecipe = "fc-gru"\nset."train.epochs" = 4\n',
        r"where\[0\] matches no cell of the grid",
    ),
    "a setting": (
        '[[where]]\nrecipe = "fc-gru"\nset."train.epoch" = 4\n',
        r"unknown setting 'train.epoch' in where\[0\].set. Did you mean 'train.epochs'",
    ),
    "what is swept": (
        '[[where]]\nrecipe = "fc-gru"\nset."train.lr" = 4.0\n',
        r"where\[0\].set: train.lr is swept; give its values in \[sweep\]",
    ),
    "a parameter's value": (
        '[[where]]\nrecipe = "fc-gru"\nset."objective.gamma" = "big"\n',
        "objective.gamma must be a number, not 'big'",
    ),
    "no settings": ('[[where]]\nrecipe = "fc-gru"\n', r"where.0.set: it needs 1 or more entries"),
    "settings of no cells": (
        '[[where]]\nset."train.epochs" = 4\n',
        "where.0.cells: it names no cells, as recipe = 'scan\\*' does",
    ),
    "what nobody reads": (
        '[[where]]\nobjective = "con_con"\nset."objective.gamma" = 4.0\n',
        r"objective.gamma has no effect in this grid",
    ),
}


@pytest.mark.parametrize("mistake", WRONG)
def test_a_mistake_is_one_message(mistake: str, tmp_path: Path) -> None:
    entries, message = WRONG[mistake]
    text = BASE.replace("\n[set]", f"\n{entries}\n[set]") if entries.startswith("exclude") else BASE + entries
    with pytest.raises(UserError, match=message):
        expand(grid_of(tmp_path, text))


def test_members_that_nobody_needs_are_left_out() -> None:
    whole = trials_of(expand(load("selhn-table2", ["exclude=[]"])))
    entry = 'exclude=[{recipe="sgraf", objective="selhn"}]'
    less = trials_of(expand(load("selhn-table2", [entry])))
    gone = {(trial.shared.recipe, trial.shared.objective.name) for trial in whole} - {
        (trial.shared.recipe, trial.shared.objective.name) for trial in less
    }
    assert gone == {("sgraf", "selhn"), ("sgr", "selhn"), ("saf", "selhn")}
    assert {trial.id for trial in less} < {trial.id for trial in whole}


def test_a_member_that_the_grid_names_stays() -> None:
    cells = expand(load("selhn-table7", ['exclude=[{recipe="sgraf", objective="selhn"}]']))
    assert {("sgr", "selhn"), ("saf", "selhn")} <= {(cell.recipe, cell.objective) for cell in cells}


def test_entries_may_fit_no_cell_once_the_command_line_has_narrowed_the_axes(tmp_path: Path) -> None:
    cells = expand(grid_of(tmp_path, BASE + ENTRIES, 'objectives="con_con"', 'recipes="fc-bow"'))
    assert {settings(cell)[:2] for cell in cells} == {(3, 2.0), (3, 1.0)}
    with pytest.raises(UserError, match=r"unknown recipe 'fc-grv' in exclude\[0\], which matches no cell"):
        expand(grid_of(tmp_path, BASE, 'exclude=[{recipe="fc-grv"}]'))


def test_a_place_of_data_that_the_grid_does_not_have_is_a_mistake(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"unknown data set 'flickr8' in \[data.flickr8\]. Did you mean 'flickr8k'"):
        grid_of(tmp_path, BASE + '[data.flickr8]\nroot = "/data"\n')
    with pytest.raises(UserError) as caught:  # of data of one's own: one slip, one message
        grid_of(tmp_path, BASE.replace('"flickr8k"]', '"mine"]') + '[data.mien]\nroot = "/data"\n')
    assert str(caught.value).endswith(
        "unknown data set 'mien' in [data.mien]. Did you mean 'mine'? Known: shapes, mine."
    )
    (tmp_path / "base.toml").write_text(BASE + '[data.flickr8k]\nroot = "/data"\n', encoding="utf-8")
    less = grid_of(tmp_path, 'extends = "base.toml"\nname = "less"\ndatasets = "shapes"\n')
    assert less.data == {}
    assert grid_of(tmp_path, 'extends = "base.toml"\nname = "less"\n', "datasets=shapes").data == {}
