"""The forms of grid files: a grid that extends another, cells that are left out, ranges."""

import re
from pathlib import Path

import pytest

from goalgrid.grid.errors import UserError
from goalgrid.grid.expansion import Cell, expand, trials_of
from goalgrid.grid.gridfile import load
from goalgrid.grid.store.home import Home
from goalgrid.grid.store.saved_grid import read_grid, save_grid
from goalgrid.grid.syntax import spaced

from ..conftest import ROOT

PAGE = (ROOT / "docs" / "grids.md").read_text(encoding="utf-8")
BASE, RATES, WHERE, _NOTES = re.findall(r"```toml\n(.*?)```", PAGE, re.DOTALL)


def of_rates(folder: Path, *overrides: str, rates: str = RATES, base: str = BASE) -> list[Cell]:
    (folder / "base.toml").write_text(base, encoding="utf-8")
    (folder / "rates.toml").write_text(rates, encoding="utf-8")
    return expand(load(str(folder / "rates.toml"), overrides))


def test_a_grid_is_that_which_it_extends_with_its_own_lists_tables_and_cells(tmp_path: Path) -> None:
    cells = of_rates(tmp_path)
    grid = load(str(tmp_path / "rates.toml"))
    assert (grid.name, grid.seeds, grid.set) == ("rates", [0, 1], {"train.epochs": 2})
    assert grid.sweep == {"objective.tau": [1, 10], "train.lr": [1e-4, 3.2e-4, 1e-3]}
    found = [(cell.objective, *dict(cell.swept).values()) for cell in cells]
    assert len(found) == len(set(found)) == 3 * 2 * 3 - 3 - 4
    assert not any(name == "lin_cir" and tau == 1 for name, tau, _ in found)
    assert not any(name != "lin_cir" and rate == 1e-3 for name, _, rate in found)
    shared = {"recipes": '"cnn-bow"', "name": '"mine"', "sweep": "{}", "exclude": "[]"}
    base = {trial.id for trial in trials_of(expand(load(str(tmp_path / "base.toml"))))}
    same = load(str(tmp_path / "rates.toml"), [f"{key}={value}" for key, value in shared.items()])
    assert {trial.id for trial in trials_of(expand(same))} & base


def test_the_saved_grid_is_whole(tmp_path: Path) -> None:
    trials = trials_of(of_rates(tmp_path))
    home = Home(tmp_path / "runs")
    save_grid(load(str(tmp_path / "rates.toml")), trials, home)
    (tmp_path / "base.toml").unlink()
    assert trials_of(expand(read_grid("rates", home))) == trials


def test_what_is_set_is_no_longer_swept_and_the_reverse(tmp_path: Path) -> None:
    of_rates(tmp_path, rates='extends = "base.toml"\nname = "r"\nset.objective.tau = 3\nsweep.train.epochs = [1, 4]\n')
    grid = load(str(tmp_path / "rates.toml"))
    assert (grid.set, grid.sweep) == ({"objective.tau": 3}, {"train.epochs": [1, 4]})


def test_files_beside_an_extended_grid_are_found_from_its_own_folder(tmp_path: Path) -> None:
    (tmp_path / "below").mkdir()
    (tmp_path / "below" / "small.toml").write_text('extends = "cnn-bow"\ntrain.lr = 0.5\n', encoding="utf-8")
    base = (
        BASE.replace('"cnn-bow"', '"small.toml", "fast"') + '[recipe.fast]\nextends = "small.toml"\ntrain.lr = 0.25\n'
    )
    (tmp_path / "below" / "base.toml").write_text(base, encoding="utf-8")
    rates = 'extends = "below/base.toml"\nname = "r"\n[recipe.fast]\ntrain.clip_norm = 1\n'
    cells = {cell.recipe: cell.trials[0].shared.train for cell in of_rates(tmp_path, rates=rates)}
    assert (cells["small"].lr, cells["fast"].lr, cells["fast"].clip_norm) == (0.5, 0.25, 1.0)
    shipped = of_rates(tmp_path, rates='extends = "demo"\nname = "r"\nseeds = 7\nobjectives = "con_con"\n')
    assert [cell.trials[0].seed for cell in shipped] == [7]


WRONG = {
    "a missing file": (
        ('"base.toml"', '"bse.toml"'),
        r"rates.toml' extends 'bse.toml': .*: no file .*bse.toml. Did you",
    ),
    "an unknown name": (('"base.toml"', '"dmeo"'), r"extends 'dmeo': unknown grid 'dmeo'. Did you mean 'demo'\?"),
    "itself": (('"base.toml"', '"rates.toml"'), r"extends itself: rates.toml -> rates.toml\."),
    "no name": (('name = "rates"', ""), "name: it is missing"),
    "no text": (('"base.toml" ', "3 "), "extends = 3 should be the path of a grid file, or a shipped grid's name"),
    "an unknown axis": (
        ('{ objective = "lin', '{ objectve = "lin'),
        r"unknown axis 'objectve' in exclude\[0\]. Did you mean 'objective'",
    ),
    "a seed": (('objective = "con_*"', "seed = 0"), r"unknown axis 'seed' in exclude\[1\].*with all their seeds"),
    "no cell": (
        ("lin_cir", "lin_crc"),
        r"unknown objective 'lin_crc' in exclude\[0\], which matches no cell. Did you",
    ),
    "a value that is none": (("= 1 }", "= 2 }"), r"unknown objective.tau 2 in exclude\[0\], which matches no cell"),
    "every cell": (('objective = "con_*", "train.lr" = 1e-3', 'recipe = "*"'), "exclude leaves out every cell"),
    "a range from 0": (
        ("1e-4", "0"),
        r"train.lr in \[sweep\]: log = \[0, 0.001, 3\] needs a first and a last number above 0",
    ),
    "a range of two": (
        ("1e-3, 3]", "1e-3]"),
        r"train.lr in \[sweep\]: .* is not a range; a range is { log = \[first, last",
    ),
    "another range": (("{ log", "{ lag"), r"unknown setting 'train.lr.lag' in \[sweep\]. Did you mean 'train.lr'\?"),
}


@pytest.mark.parametrize("mistake", WRONG)
def test_a_mistake_is_one_message(mistake: str, tmp_path: Path) -> None:
    edit, said = WRONG[mistake]
    with pytest.raises(UserError, match=said) as caught:
        of_rates(tmp_path, rates=RATES.replace(*edit))
    assert "\n" not in str(caught.value) or mistake == "no name"


def test_a_circle_of_grids_is_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"extends itself: rates.toml -> base.toml -> rates.toml\."):
        of_rates(tmp_path, base='extends = "rates.toml"\n' + BASE)


def test_a_parent_is_not_left_out_without_what_starts_from_it() -> None:
    fine = 'recipes=["vsepp-r152-tiny-ft"]', 'exclude=[{recipe="vsepp-r152-tiny"}]'
    with pytest.raises(UserError, match=r"exclude leaves out vsepp-r152-tiny, from which vsepp-r152-tiny-ft starts"):
        expand(load("demo", fine))


@pytest.mark.parametrize(
    ("kind", "ends", "values"),
    [
        ("log", (1e-4, 1e-3, 5), [1e-4, 1.8e-4, 3.2e-4, 5.6e-4, 1e-3]),
        ("log", (32, 256, 4), [32, 64, 128, 256]),
        ("log", (32, 256, 6), [32, 49, 74, 110, 170, 256]),
        ("log", (1, 10, 3), [1.0, 3.2, 10.0]),
        ("linear", (0.1, 0.3, 5), [0.1, 0.15, 0.2, 0.25, 0.3]),
        ("linear", (0, 1, 9), [0.0, 0.125, 0.25, 0.375, 0.5, 0.625, 0.75, 0.875, 1.0]),
        ("linear", (10, 2, 5), [10, 8, 6, 4, 2]),
        ("linear", (1000, 1001, 3), [1000.0, 1000.5, 1001.0]),
    ],
    ids=str,
)
def test_a_range_has_the_values_that_a_person_would_write(
    kind: str, ends: tuple[float, float, int], values: list[float]
) -> None:
    found = spaced(kind, *ends)
    assert found == values
    assert [type(value) for value in found] == [type(value) for value in values]


def test_the_ranges_of_the_page_have_the_values_beside_them() -> None:
    rows = re.findall(r'\| `("[^"]+") = ([^`]+)` \| ([0-9., ]+) \|', PAGE)
    assert len(rows) == 3
    for name, text, values in rows:
        grid = load("demo", [f"sweep.{name.strip(chr(34))}={text}"])
        assert grid.sweep[name.strip('"')] == [float(value) for value in values.split(",")]


def test_the_pages_settings_of_some_cells_are_read(tmp_path: Path) -> None:
    grid = 'extends = "selhn-table8"\nname = "scans"\ndatasets = ["coco", "flickr30k"]\nrecipes = ["scan"]\n'
    cells = of_rates(tmp_path, rates=grid + WHERE)
    scans = {cell.dataset: cell.trials[0].shared.model.scorer for cell in cells if cell.recipe == "scan-i2t"}
    sharpness = {dataset: scorer.model_dump()["lse_sharpness"] for dataset, scorer in scans.items()}
    assert sharpness == {"coco": 20, "flickr30k": 5}
