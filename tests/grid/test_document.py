"""From a grid file's text to its grid: each stage runs once, and a value of a wrong kind stops no other message."""

import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import pytest

from goalgrid.grid.document import KINDS, content_of, read_text
from goalgrid.grid.errors import UserError
from goalgrid.grid.gridfile import Grid, check, load
from goalgrid.grid.overrides import changed
from goalgrid.grid.store.home import Home
from goalgrid.grid.store.saved_grid import read_grid, save_grid
from goalgrid.grid.user_recipes import OwnRecipes

STAGES: tuple[Callable[..., Any], ...] = (read_text, content_of, OwnRecipes.__init__, changed, check)


def calls(action: Callable[[], object]) -> Counter[CodeType]:
    counts = Counter[CodeType]()

    def count(frame: FrameType, event: str, _: object) -> None:
        counts[frame.f_code] += event == "call"

    sys.setprofile(count)
    try:
        action()
    finally:
        sys.setprofile(None)
    return counts


def test_a_grid_goes_through_each_stage_once(tmp_path: Path) -> None:
    counts = calls(lambda: load("demo"))
    assert [counts[stage.__code__] for stage in STAGES] == [1, 1, 1, 1, 1]
    (tmp_path / "g.toml").write_text('extends = "demo"\nname = "g"\nseeds = 7\n', encoding="utf-8")
    counts = calls(lambda: load(str(tmp_path / "g.toml"), ["train.epochs=1"]))
    texts = 3  # the preset, the file, the command line
    assert [counts[stage.__code__] for stage in STAGES] == [2, texts, texts, 1, 1]


def test_every_field_of_a_grid_has_a_kind() -> None:
    assert KINDS.keys() == Grid.model_fields.keys()


@pytest.mark.parametrize("line", ["datasets = 3", "datasets = { a = 1 }"])
def test_a_root_of_what_is_no_data_set_is_one_message(line: str, tmp_path: Path) -> None:
    (tmp_path / "g.toml").write_text(f'extends = "demo"\nname = "g"\n{line}\n', encoding="utf-8")
    with pytest.raises(UserError, match=r"unknown data set 'coco' in --root coco=/x\. Known: none\."):
        load(str(tmp_path / "g.toml"), roots=["coco=/x"])


def test_the_last_override_of_a_table_counts() -> None:
    assert load("demo", ["set=3", "train.epochs=1"]).set == {"train.epochs": 1}
    with pytest.raises(UserError, match=r"set: it should be a table \(got 3\)"):
        load("demo", ["train.epochs=1", "set=3"])


def test_a_grid_that_ran_extends_no_file(tmp_path: Path) -> None:
    """Whoever wrote the runs folder would have this user's files read."""
    home, grid = Home(tmp_path / "runs"), load("demo")
    save_grid(grid, [], home)
    path = home.grid("demo").grid
    path.write_text('extends = "demo"\n' + path.read_text(encoding="utf-8"), encoding="utf-8")
    with pytest.raises(UserError, match="unknown key 'extends'"):
        read_grid("demo", home)
