"""`goalgrid new`: a grid file for the data at hand, which plans as it stands."""

import shlex
import shutil
import tomllib
from pathlib import Path

import pytest

from goalgrid.grid.errors import UserError
from goalgrid.grid.gridfile import load
from goalgrid.grid.select import Select
from goalgrid.listings import new_grid

from ...conftest import Goalgrid
from ...retrieval.components.video import made
from ...retrieval.packages import write_csv, write_precomp


@pytest.mark.parametrize(("write", "recipe"), [(write_csv, "cnn-bow"), (write_precomp, "fc-bow")])
def test_a_new_grid_reads_what_lies_there(write: object, recipe: str, tmp_path: Path, goalgrid: Goalgrid) -> None:
    root = tmp_path / 'my "photos"'
    root.mkdir()
    write(root)  # type: ignore[operator]
    made = goalgrid("new", "birds", "--root", root.name, runs=tmp_path, folder=tmp_path)
    assert (made.returncode, "note:" in made.stderr) == (0, False), made.stderr
    grid = load(str(tmp_path / "birds.toml"))
    assert (grid.datasets, grid.recipes, grid.root("birds")) == (["birds"], [recipe], root)
    planned = goalgrid("plan", "birds.toml", runs=tmp_path, folder=tmp_path)
    assert planned.stdout.startswith("birds: 9 trials: 9 planned"), planned.stderr
    unnamed = goalgrid("run", runs=tmp_path, folder=tmp_path).stderr
    assert "no grid given. Known grids: birds.toml, demo; goalgrid grids lists all that are shipped." in unnamed
    (tmp_path / "recipe.toml").write_text('extends = "fc-bow"\n')
    (tmp_path / "folder.toml").mkdir()
    (tmp_path / "grids" / "ran").mkdir(parents=True)
    (tmp_path / "grids" / "ran" / "grid.toml").touch()
    assert "Known grids: ran, birds.toml, demo; " in goalgrid("run", runs=tmp_path, folder=tmp_path).stderr
    refused = goalgrid("run", "birds", "--here", runs=tmp_path, folder=tmp_path)
    assert "Or use the file birds.toml, which exists here." in refused.stderr
    again = goalgrid("new", "birds.toml", "--root", root.name, runs=tmp_path, folder=tmp_path)
    assert again.returncode == 2
    assert "birds.toml already exists" in again.stderr


def test_a_new_grid_names_the_faults_of_its_data_at_once(tmp_path: Path, goalgrid: Goalgrid) -> None:
    write_csv(tmp_path / "my photos")
    with (tmp_path / "my photos" / "captions.csv").open("a") as file:
        file.writelines(f"gone{number}.png,a bird,train\n" for number in range(7))
    made = goalgrid("new", "birds", "--root", "my photos", runs=tmp_path, folder=tmp_path)
    assert f"note: {tmp_path}/my photos/captions.csv: " in made.stderr
    assert "gone0.png" in made.stderr
    (words,) = [line.partition(": ")[2] for line in made.stderr.splitlines() if " more: " in line]
    checked = goalgrid(*shlex.split(words)[1:], runs=tmp_path)
    assert checked.returncode == 2
    assert checked.stdout.startswith(f"birds under {tmp_path}/my photos: ")


def test_a_new_grid_says_what_is_not_read(tmp_path: Path, goalgrid: Goalgrid) -> None:
    write_precomp(tmp_path / "data")
    for kind in ("ims.npy", "caps.txt", "ids.txt"):
        shutil.copy(tmp_path / "data" / f"test_{kind}", tmp_path / "data" / f"testall_{kind}")
    made = goalgrid("new", "mine", "--root", "data", runs=tmp_path, folder=tmp_path)
    assert f"note: {tmp_path}/data/testall_*: these files are not read: the splits are train_*, dev_*, test_*. " in (
        made.stderr
    )
    assert "To read them, name the data set coco, or rename them." in made.stderr
    write_csv(tmp_path / "photos")
    (tmp_path / "photos" / "captions.txt").write_text("image,caption\n0.png,a dog\n")
    made = goalgrid("new", "birds", "--root", "photos", runs=tmp_path, folder=tmp_path)
    assert f"note: {tmp_path}/photos/captions.txt: is ignored: " in made.stderr


def test_the_search_of_a_new_grid_has_the_default_and_is_confirmed() -> None:
    content, _ = new_grid.text("mine", None, [], [], None)
    search = content[content.index("# [select]") :].replace("\n# ", "\n")[2:]
    lines = [line.partition("  #")[0] for line in search.splitlines()]
    select = Select.model_validate(tomllib.loads("\n".join(lines))["select"])
    assert (select.include, select.confirm, select.confirm_seeds) == ("default", 3, 2)
    assert len(select.points()) == 4


def test_a_new_grid_uses_files_of_the_users_own(tmp_path: Path, goalgrid: Goalgrid) -> None:
    decorator = '@goalgrid.objective("soft-hinge", tau=goalgrid.Parameter(10.0, "steepness"))'
    (tmp_path / "losses.py").write_text(f"import goalgrid\n\n\n{decorator}\ndef soft_hinge(t, *, tau):\n    return t\n")
    made = goalgrid("new", "mine", "--uses", "losses.py", runs=tmp_path, folder=tmp_path)
    assert made.returncode == 0, made.stderr
    grid = load(str(tmp_path / "mine.toml"))
    assert (grid.uses[0].path, grid.objectives[-1]) == (str(tmp_path / "losses.py"), "soft-hinge")


def test_a_new_grid_of_videos_has_a_recipe_that_reads_their_experts(tmp_path: Path) -> None:
    made.write(tmp_path / "tiny", made.TINY)
    text, notes = new_grid.text("videos", None, [], ["goal"], str(tmp_path / "tiny"))
    assert ('recipes = ["ce-tiny"]' in text, notes) == (True, [])
    made.write(tmp_path / "other", {"audio": 3})
    text, (doubt,) = new_grid.text("videos", None, [], ["goal"], str(tmp_path / "other"))
    assert 'recipes = ["ce"]' in text
    assert "has vectors of 3 values, but the recipe expects 128 for this expert" in doubt


def test_a_name_of_a_grid_with_a_dot_is_a_name_of_its_data(tmp_path: Path) -> None:
    write_csv(tmp_path / "photos")
    (tmp_path / "f30k.v2.toml").write_text(new_grid.text("f30k.v2", None, [], ["goal"], str(tmp_path / "photos"))[0])
    grid = load(str(tmp_path / "f30k.v2.toml"))
    assert (grid.name, grid.datasets, grid.root("f30k.v2")) == ("f30k.v2", ["f30k.v2"], tmp_path / "photos")


def test_lines_that_are_comments_become_settings(tmp_path: Path) -> None:
    text, _ = new_grid.text("birds", None, ["cnn-gru"], ["goal"], None)
    for line in ('"train.epochs"', "[sweep]", '"train.lr"'):
        assert f"\n# {line}" in text
        text = text.replace(f"\n# {line}", f"\n{line}")
    (tmp_path / "birds.toml").write_text(text, encoding="utf-8")
    grid = load(str(tmp_path / "birds.toml"))
    assert (grid.datasets, len(grid.objectives)) == (["shapes"], 15)
    assert (grid.set, grid.sweep) == ({"train.epochs": 20}, {"train.lr": [1e-4, 1e-3]})


def test_what_is_wrong_or_missing_is_said(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"(?s)unknown recipe 'cnn-bwo'.*unknown objective 'hinge'"):
        new_grid.text("birds", "flickr8k", ["cnn-bwo"], ["hinge"], None)
    with pytest.raises(UserError, match=r"missing option --root DIR: the folder of 'birds'"):
        new_grid.text("mine", "birds", [], [], None)
    for name in ("../mine", "my grid", "a/b", ""):
        with pytest.raises(UserError, match=f"grid '{name}': a name begins with a letter or digit"):
            new_grid.text(name, None, [], [], str(tmp_path))
    with pytest.raises(UserError, match="data set 'my data': a name begins with a letter or digit"):
        new_grid.text("mine", "my data", [], [], str(tmp_path))
    with pytest.raises(UserError, match="a shipped grid is already called 'demo'"):
        new_grid.text("demo", None, [], [], None)
    with pytest.raises(UserError, match="data set 'shapes' is generated"):
        new_grid.text("mine", "shapes", [], [], str(tmp_path))
    assert "goalgrid data check birds --root" in new_grid.text("birds", None, [], [], str(tmp_path))[1][0]
    assert "no data in a known form" in new_grid.text("birds", None, [], [], str(tmp_path / "none"))[1][0]
    assert "goalgrid data where flickr8k" in new_grid.text("birds", "flickr8k", [], [], None)[0]
