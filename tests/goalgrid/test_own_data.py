"""Data of one's own: every form that docs/data/own.md shows is read, checked and trained on as the page has it."""

import os
import re
from pathlib import Path

import pytest

from goalgrid.grid.store.home import Home
from goalgrid.results.records import record

from ..conftest import ROOT, Goalgrid
from ..retrieval.packages import write_image
from .conftest import Verb

PAGE = (ROOT / "docs" / "data" / "own.md").read_text(encoding="utf-8")
SECTIONS = dict(section.split("\n", 1) for section in PAGE.split("\n## ")[1:])
FILES = re.compile(r"^`DIR/([\w.]+)`[^`]*\n```\w*\n(.*?)^```", re.MULTILINE | re.DOTALL)
FORMS = {title: name for title in SECTIONS if (name := re.sub(r"\W+", "-", title.lower()))}
"""Name of the data set of each section."""
IMAGES = ("dog.jpg", "cat.jpg", "cow.jpg", "owl.jpg")


def write(title: str, root: Path, features: str = "") -> None:
    """Write the files of a section, and the images that they name."""
    root.mkdir()
    for name, content in FILES.findall(SECTIONS[title]):
        (root / name).write_text(content, encoding="utf-8")
        for image in re.findall(r"\w+\.jpg", content):
            write_image(root / "images" / image, 60 * IMAGES.index(image))
    for code in re.findall(r"```python\n(.*?)```", SECTIONS[title], re.DOTALL):
        before = Path.cwd()
        os.chdir(root)
        exec(code.replace("// 2, 512)", f"// 2, {features}512)"), {})
        os.chdir(before)


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for each section of the page, and one with features of regions."""
    folder = tmp_path_factory.mktemp("own")
    for title, name in FORMS.items():
        write(title, folder / name)
    write("Features", folder / "regions", "9, ")
    return folder


@pytest.mark.parametrize("name", [*FORMS.values(), "regions"])
def test_the_check_finds_no_fault(name: str, packages: Path, goalgrid: Goalgrid, tmp_path: Path) -> None:
    told = goalgrid("data", "check", name, "--root", str(packages / name), runs=tmp_path)
    assert told.returncode == 0, told.stdout
    assert "no problems" in told.stdout
    assert re.search(r"train +2 (images|videos)", told.stdout)


@pytest.mark.parametrize("recipe", ["cnn-bow", "fc-bow", "ce-tiny"])
def test_an_epoch_is_trained_on_every_form(recipe: str, packages: Path, verb: Verb, tmp_path: Path) -> None:
    read_by = {"fc-bow": ["features", "regions"], "ce-tiny": ["videos"]}
    of_pictures = {*FORMS.values()}.difference(*read_by.values())
    names = read_by.get(recipe, sorted(of_pictures))
    (grid,) = re.findall(r"```toml\n(.*?)\[data", PAGE, re.DOTALL)
    grid = grid.replace('["mine"]', str(names)).replace("cnn-bow", recipe).replace(', "sig-ms_cir"', "")
    places = [f'[data.{name}]\nroot = "{packages / name}"\n' for name in names]
    file = tmp_path / "mine.toml"
    file.write_text(f'{grid}set = {{"train.epochs" = 1, "dataset.min_count" = 1}}\n{"".join(places)}', encoding="utf-8")
    told = verb("run", str(file), "--here", "--mlflow-uri", "", runs=Home(tmp_path))
    assert told.exit_code == 0, told.output
    rows = record.collect(tmp_path.glob("trials/*/record.parquet")).to_pylist()
    assert {(row["dataset"], row["protocol"]) for row in rows} == {(name, f"{name}-test") for name in names}
    assert all(row["epochs"] == 1 for row in rows)


def test_the_command_shows_the_files_of_the_page(goalgrid: Goalgrid, tmp_path: Path) -> None:
    told = goalgrid("data", "where", runs=tmp_path).stdout
    shown = {name for section in SECTIONS.values() for name, _ in FILES.findall(section)}
    short = {"train.txt", "val.txt", "test.txt", "mine.token.txt", "mine_train.json", "mine_val.json", "mine_test.json"}
    assert [name for name in shown - short if name not in told] == []
    assert {
        "DIR/{train,val,test}.txt",
        "DIR/NAME_{train,val,test}.json",
        "DIR/NAME.token.txt",
        "DIR/train_ims.npy",
    } <= set(told.split())
