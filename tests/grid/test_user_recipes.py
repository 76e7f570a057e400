"""A user's own recipes: files and tables, what they extend, what stays when the files are gone, and every mistake."""

from pathlib import Path

import pytest

from goalgrid.grid.errors import UserError
from goalgrid.grid.expansion import chains, expand
from goalgrid.grid.gridfile import Grid, load
from goalgrid.grid.identity import digest
from goalgrid.grid.store.home import Home
from goalgrid.grid.store.saved_grid import read_grid, save_grid

from ..conftest import swapped

AXES = 'name = "g"\ndatasets = "shapes"\nobjectives = "con_con"\nseeds = 0\n'
SHORT = 'extends = "cnn-bow"\n[train]\nepochs = 3\n'


def own_grid(folder: Path, content: str, **files: str) -> Grid:
    for name, text in files.items():
        (folder / f"{name}.toml").write_text(text, encoding="utf-8")
    (folder / "g.toml").write_text(AXES + content, encoding="utf-8")
    return load(str(folder / "g.toml"))


def trained(grid: Grid) -> dict[str, tuple[str, int, int]]:
    """Id, epochs and batch size of each recipe's trial."""
    shared = {cell.recipe: (cell.trials[0].id, cell.trials[0].shared.train) for cell in expand(grid)}
    return {recipe: (name, train.epochs, train.batch_size) for recipe, (name, train) in shared.items()}


def test_files_and_tables_extend_shipped_recipes_and_one_another(tmp_path: Path) -> None:
    tables = '[recipe.wide]\nextends = "./short.toml"\ntrain.batch_size = 32\n[recipe.wider]\nextends = "wide"\n'
    found = trained(
        own_grid(
            tmp_path,
            f'recipes = ["cnn-bow", "./short.toml", "long.toml", "wide", "wider"]\n{tables}train.batch_size = 16\n',
            short=SHORT,
            long='extends = "short.toml"\ntrain.epochs = 9\n',
        )
    )
    assert {recipe: sizes for recipe, (_, *sizes) in found.items()} == {
        "cnn-bow": [10, 64],
        "short": [3, 64],
        "long": [9, 64],
        "wide": [3, 32],
        "wider": [3, 16],
    }


def test_a_recipe_is_its_content_wherever_it_stands(tmp_path: Path) -> None:
    in_a_file = trained(own_grid(tmp_path, 'recipes = "./short.toml"\n', short=SHORT))
    (tmp_path / "below").mkdir()
    below = trained(own_grid(tmp_path, 'recipes = "below/short.toml"\n', **{"below/short": f"# mine\n{SHORT}"}))
    table = swapped(SHORT, "[train]\nepochs", "train.epochs")
    assert in_a_file == below == trained(own_grid(tmp_path, f'recipes = "short"\n[recipe.short]\n{table}'))
    ours = trained(own_grid(tmp_path, 'recipes = "cnn-bow"\n'))
    assert ours == trained(own_grid(tmp_path, 'recipes = "./cnn-bow.toml"\n', **{"cnn-bow": 'extends = "cnn-bow"\n'}))


def test_an_own_recipe_starts_from_another(tmp_path: Path) -> None:
    tuned = 'extends = "short.toml"\nstarts_from = "short.toml"\ntrain.lr = 1e-4\n'
    grid = own_grid(tmp_path, 'recipes = "./tuned.toml"\n', short=SHORT, tuned=tuned)
    first, second = expand(grid)
    assert (first.recipe, second.recipe) == ("short", "tuned")
    assert second.trials[0].parents == (first.trials[0].id,)


def test_a_saved_grid_keeps_its_recipes_whole(tmp_path: Path) -> None:
    grid, home = own_grid(tmp_path, 'recipes = ["./short.toml"]\n', short=SHORT), Home(tmp_path / "runs")
    before = trained(grid)
    save_grid(grid, [], home)
    (tmp_path / "short.toml").unlink()
    assert trained(read_grid("g", home)) == before


WRONG = {
    "no such file": (
        'recipes = "./shrt.toml"\n',
        "recipe './shrt.toml': no file .*Did you mean 'short.toml' in the same",
    ),
    "no TOML": (
        'recipes = "./broken.toml"\n',
        "recipe './broken.toml': .*broken.toml is not valid TOML: Invalid value",
    ),
    "a cycle": (
        'recipes = "./a.toml"\n',
        "recipes extend or start from one another in a circle: .*a.toml -> .*b.toml -> ",
    ),
    "a cycle of tables": (
        'recipes = "x"\n[recipe.x]\nextends = "y"\n[recipe.y]\nextends = "x"\n',
        r"extend or start from one another in a circle: \[recipe.x\] -> \[recipe.y\] -> \[recipe.x\]",
    ),
    "an unknown key": (
        'recipes = "x"\n[recipe.x]\nextends = "cnn-bow"\ntrain.epoch = 3\n',
        r"recipe \[recipe.x\]: unknown key 'epoch' in train. Did you mean 'epochs'",
    ),
    "a wrong value": (
        'recipes = "x"\n[recipe.x]\nextends = "cnn-bow"\ntrain.epochs = -3\n',
        r"recipe \[recipe.x\]: train.epochs: it should be at least 0 \(got -3\)",
    ),
    "an unknown base": (
        'recipes = "x"\n[recipe.x]\nextends = "cnn-bwo"\n',
        r"unknown recipe 'cnn-bwo' in \[recipe.x\]. Did you mean 'cnn-bow'",
    ),
    "a shipped name": (
        'recipes = "cnn-bow"\n[recipe.cnn-bow]\nextends = "short.toml"\n',
        r"\[recipe.cnn-bow\]: the recipe that is shipped has the name 'cnn-bow', too, and other content: train.epochs",
    ),
    "two of a name": (
        'recipes = ["./short.toml"]\n[recipe.short]\nextends = "cnn-bow"\n',
        "short.toml has the name 'short', too, and other content: train.epochs 10 and 3. Give yours another name",
    ),
    "a name that no folder can have": (
        'recipes = "my own"\n[recipe."my own"]\nextends = "cnn-bow"\n',
        r"recipe \[recipe.my own\]: a name begins with a letter or digit, .* not 'my own'",
    ),
    "no recipe": ("recipes = 'x'\n[recipe]\nx = 3\n", "recipe.x: it should be a table"),
}


@pytest.mark.parametrize("mistake", WRONG)
def test_a_mistake_in_an_own_recipe_is_one_message(mistake: str, tmp_path: Path) -> None:
    content, said = WRONG[mistake]
    files = {"short": SHORT, "broken": "x = \n", "a": 'extends = "b.toml"\n', "b": 'extends = "a.toml"\n'}
    with pytest.raises(UserError, match=said):
        own_grid(tmp_path, content, **files)


def test_an_own_ensemble_waits_for_its_members(tmp_path: Path) -> None:
    tables = '[recipe.both]\nensemble = ["./short.toml", "cnn-gru"]\n'
    grid = own_grid(tmp_path, f'recipes = "both"\n{tables}', short=SHORT)
    first, second, both = expand(grid)
    assert (first.recipe, second.recipe, both.recipe) == ("short", "cnn-gru", "both")
    (trial,) = both.trials
    assert trial.parents == trial.settings.ensemble == (first.trials[0].id, second.trials[0].id)
    assert trial.id.endswith(digest(trial.settings)[:8])
    assert chains([first.trials[0], second.trials[0], trial]) == [[first.trials[0], second.trials[0], trial]]
    save_grid(grid, [trial], Home(tmp_path / "runs"))
    assert [cell.trials for cell in expand(read_grid("g", Home(tmp_path / "runs")))] == [
        first.trials, second.trials, both.trials
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("table", "said"),
    [
        ('ensemble = ["cnn-bow"]', r"ensemble = \['cnn-bow'\] is not a list of two or more different recipes"),
        ('ensemble = "cnn-bow"', "ensemble = 'cnn-bow' is not a list of two or more different recipes"),
        ('ensemble = ["cnn-bow", "cnn-bow"]', "list of two or more different recipes"),
        ('ensemble = ["cnn-bow", "cnn-gruu"]', "unknown recipe 'cnn-gruu'.*Did you mean 'cnn-gru'"),
        ('ensemble = ["cnn-bow", "scan-tiny"]', "its member 'scan-tiny' is itself an ensemble"),
        ('ensemble = ["cnn-bow", "cnn-gru"]\ntrain.epochs = 3', "trains nothing, so it has no train"),
        ('ensemble = ["cnn-bow", "cnn-gru"]\nextends = "cnn-gru"', "trains nothing, so it has no extends"),
        ('ensemble = ["cnn-bow", "both"]', "extend or start from one another"),
        ('extends = "scan-tiny"', "'scan-tiny' is an ensemble, which trains nothing; extend one of its members: scan-"),
    ],
)
def test_a_wrong_ensemble_is_told(tmp_path: Path, table: str, said: str) -> None:
    with pytest.raises(UserError, match=f"(?s){said}"):
        expand(own_grid(tmp_path, f'recipes = "both"\n[recipe.both]\n{table}\n'))
