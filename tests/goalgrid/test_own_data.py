"""Data of one's own: every form that docs/data/own.md shows is read, checked and trained on as the page has it."""

import json
import os
import re
from collections.abc import Sequence
from pathlib import Path

import pytest

from goalgrid.grid.errors import UserError
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


def captioned(root: Path, captions: Sequence[str]) -> tuple[str, ...]:
    """A root with a picture for each caption, a quarter each of val and test; and the options that train on it."""
    rows = ["image,caption,split"]
    for number, caption in enumerate(captions):
        write_image(root / "images" / f"{number}.png", 9 * number)
        rows.append(f"{number}.png,{caption},{('train', 'train', 'val', 'test')[number % 4]}")
    (root / "captions.csv").write_text("\n".join(rows) + "\n", encoding="utf-8")
    given = ("datasets=mine", "recipes=cnn-bow", "objectives=triplet-hn", "seeds=[0]", "train.epochs=1")
    return ("demo", *(word for option in given for word in ("--set", option)), "--root", f"mine={root}", "--here")


def test_a_launch_refuses_captions_of_which_a_vocabulary_knows_too_little(tmp_path: Path, verb: Verb) -> None:
    """A caption of a script without blanks is one word: no two captions share one."""
    options = captioned(tmp_path / "data", [f"一只猫在草地上{number}" for number in range(16)])
    with pytest.raises(
        UserError, match=r"100\.0 % of the words in the validation captions of 'mine' are unknown"
    ) as why:
        verb("run", *options, "--mlflow-uri", "", runs=Home(tmp_path / "runs"))
    assert 'model.text.encoder = "transformer"' in str(why.value)
    assert not (tmp_path / "runs" / "trials").exists()


@pytest.mark.gate
def test_a_launch_and_an_evaluation_say_how_many_words_are_unknown(tmp_path: Path, verb: Verb) -> None:
    captions = [f"ein brauner bär läuft {'über'[: 4 * (number % 4 < 2)] or f'x{number}'}" for number in range(32)]
    options, home = captioned(tmp_path / "data", captions), Home(tmp_path / "runs")
    ran = verb("run", *options, "--mlflow-uri", "", runs=home)
    assert ran.exit_code == 0, ran.stderr
    assert "note: mine: unknown words: 20.0 % of val, 20.0 % of test\n" in ran.stderr
    (trial,) = home.trials()
    words = json.loads(trial.vocabulary.read_text(encoding="utf-8"))
    assert set(words) == {"<pad>", "<unk>", "ein", "brauner", "bär", "läuft", "über"}
    evaluated = verb("evaluate", "--trial", trial.trial_id, runs=home)
    assert "  20.0 % of the words are unknown to the model\n" in evaluated.stdout
    told = verb("evaluate", "--trial", trial.trial_id, "--json", runs=home).stdout
    assert json.loads(told)["unknown_words"] == pytest.approx(0.2)


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
