"""Columns of a user's table in an own loss: a number a caption, which counts in the fingerprint of the data."""

import json
import re
from pathlib import Path

import pytest

from goalgrid.grid.errors import UserError
from goalgrid.grid.store.home import Home
from goalgrid.results.records import record
from goalgrid.retrieval.data.content import content

from ..conftest import ROOT
from ..retrieval.forms import made_up, write_files
from .conftest import Verb

PAGE = (ROOT / "docs" / "own.md").read_text(encoding="utf-8")
(WEIGHTED,) = re.findall(r"```python\n(import goalgrid\n+@goalgrid\.objective\(.weighted.*?)```", PAGE, re.DOTALL)
LOSS = '''

@goalgrid.objective("plain")
def plain(t):
    """[0.2 - s_pos + s_neg]_+"""
    return (0.2 + t.s_neg - t.s_pos).clamp(min=0)
'''
GRID = """name = "own"
datasets = ["mine"]
recipes = ["cnn-bow"]
objectives = {objectives}
seeds = [0]
uses = ["losses.py"]
set = {{ "train.epochs" = 1, "train.batch_size" = 8, "dataset.min_count" = 1, "model.image.size" = 16 }}
[data.mine]
root = "data"
"""


def write(folder: Path, weight: str, objectives: str = '["weighted", "plain"]') -> Path:
    """Data with these weights of their first captions and 1 for the others, a grid and its losses."""
    photographs = made_up(folder / "made up")
    write_files(photographs, folder / "data" / "images")
    lines = ["filepath\ttitle\tsplit\tweight"]
    for photograph in photographs:
        lines += [f"{photograph.name}\t{photograph.split} a\t{photograph.split}\t{weight}"]
        lines += [f"{photograph.name}\t{photograph.split} b {photograph.name}\t{photograph.split}\t{weight}"]
    (folder / "data" / "pairs.tsv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    (folder / "losses.py").write_text(WEIGHTED + LOSS, encoding="utf-8")
    (folder / "own.toml").write_text(GRID.format(objectives=objectives), encoding="utf-8")
    return folder / "own.toml"


def first_loss(home: Home, trial_id: str) -> float:
    """The loss of the one batch of the one epoch, before any update."""
    (epoch,) = map(json.loads, home.trial(trial_id).history.read_text().splitlines())
    return float(epoch["loss"])


@pytest.mark.gate
@pytest.mark.parametrize(("weight", "share"), [("1", 1.0), ("0.5", 0.5), ("0", 0.0)])
def test_a_column_is_the_weight_of_an_own_loss(weight: str, share: float, verb: Verb, tmp_path: Path) -> None:
    """The first batch's loss is that of the loss without weights, times the weight of all captions."""
    file = write(tmp_path, weight)
    ran = verb("run", str(file), "--here", "--mlflow-uri", "", runs=Home(tmp_path / "runs"))
    assert ran.exit_code == 0, ran.output
    home = Home(tmp_path / "runs")
    rows = {row["objective"]: row for row in record.collect(home.path.glob("trials/*/record.parquet")).to_pylist()}
    assert rows["weighted"]["data_fingerprint"] != rows["plain"]["data_fingerprint"]
    losses = {row["objective"]: first_loss(home, row["trial_id"]) for row in rows.values()}
    assert losses["plain"] > 0
    assert losses["weighted"] == pytest.approx(share * losses["plain"], rel=1e-5)


def test_columns_count_in_the_fingerprint_of_a_loss_that_reads_them_alone(tmp_path: Path) -> None:
    extra = (("extra", ("weight",)),)
    for folder, weight in (("a", "1"), ("b", "2")):
        write(tmp_path / folder, weight)
    roots = [tmp_path / folder / "data" for folder in "ab"]
    plain = {content("mine", root, features=False).fingerprint for root in roots}
    read = {content("mine", root, features=False, columns=extra).fingerprint for root in roots}
    assert (len(plain), len(read), len(plain & read)) == (1, 2, 0)


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (("weight\n", "wieght\n"), "no column 'weight', which the objective reads; its columns: 'filepath', 'title'"),
        (("\t1\n", "\tmuch\n"), "pairs.tsv, line 2: column 'weight' contains 'much', not a finite number"),
    ],
)
def test_plan_names_what_a_column_lacks(edit: tuple[str, str], message: str, verb: Verb, tmp_path: Path) -> None:
    file = write(tmp_path, "1", '["weighted"]')
    table = tmp_path / "data" / "pairs.tsv"
    table.write_text(table.read_text().replace(*edit, 1))
    with pytest.raises(UserError, match=message):
        verb("plan", str(file), runs=Home(tmp_path / "runs"))
