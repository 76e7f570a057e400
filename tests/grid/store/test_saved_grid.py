"""A grid's folder: the grid comes back as it was run, also from a file of another version."""

from pathlib import Path

import pytest

from goalgrid.grid.errors import UserError
from goalgrid.grid.expansion import expand, trials_of
from goalgrid.grid.gridfile import load
from goalgrid.grid.store.home import Home
from goalgrid.grid.store.saved_grid import read_grid, save_grid

from ...conftest import swapped


@pytest.fixture
def home(tmp_path: Path) -> Home:
    """A runs folder in which `demo` was run on two CPUs a job."""
    grid, home = load("demo", ["resources.cpu=2"]), Home(tmp_path)
    save_grid(grid, trials_of(expand(grid)), home)
    return home


def test_a_grid_comes_back_as_it_was_run(home: Home) -> None:
    assert read_grid("demo", home) == load("demo", ["resources.cpu=2"])


def test_resources_that_this_version_does_not_know_are_left_out(home: Home) -> None:
    path = home.grid("demo").grid
    path.write_text(swapped(path.read_text(), "[resources]\n", "[resources]\nof_another_version = true\n"))
    assert "of_another_version" in path.read_text()
    assert read_grid("demo", home).resources.cpu == 2


def test_a_setting_that_this_version_does_not_know_is_an_error(home: Home) -> None:
    path = home.grid("demo").grid
    assert "[set]\n" in path.read_text()
    path.write_text(swapped(path.read_text(), "[set]\n", '[set]\n"train.of_another_version" = 1\n'))
    with pytest.raises(UserError, match="of_another_version"):
        read_grid("demo", home)


@pytest.mark.parametrize("damage", [b"", b"resources = 3\n", b"\0" * 80, b"\xff\xfe\n", b"name ="])
def test_a_damaged_folder_is_named_and_the_next_run_writes_it_anew(damage: bytes, home: Home) -> None:
    folder, grid = home.grid("demo"), load("demo")
    for path in (folder.grid, folder.trials):
        path.write_bytes(damage)
    with pytest.raises(UserError, match=r"(?s)grid\.toml.*\nRun the grid 'demo' again"):
        read_grid("demo", home)
    save_grid(grid, trials_of(expand(grid)), home)
    assert read_grid("demo", home) == grid
    assert len(folder.ids()) == 45
