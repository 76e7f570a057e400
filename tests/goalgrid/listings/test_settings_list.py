"""`goalgrid settings`: nothing that a grid file may set is missing, and each is explained."""

import json
import re
from pathlib import Path

import pytest

from goalgrid.grid.cross_checks import dotted_names
from goalgrid.listings import settings_list

from ...conftest import Goalgrid


def test_every_setting_of_a_grid_file_is_listed_with_its_meaning() -> None:
    listed = settings_list.settings()
    names = {setting.name for setting in listed}
    tables = settings_list.TABLES.items()
    running = {f"{table}.{name}" for table, model in tables for name in model.model_fields}
    assert names == {*dotted_names(), *running}
    assert [setting.name for setting in listed if len(setting.meaning) < 5 or setting.meaning.endswith(".")] == []


@pytest.mark.parametrize(
    ("name", "told"),
    [
        (
            "train.warmup_epochs",
            [r"type +integer", r"allowed +from 0", r"default +0", r"unit +epochs", r"read with +an ob"],
        ),
        ("train.epochs", [r"default +the recipe's", r"in +\[set\] or \[sweep\]"]),
        ("model.image.size", [r"of +cnn\n", r"of +backbone\n", r"default +224"]),
        ("objective.tau", [r"of +\*_nca, \*_cir\n", r"read with +objective.easy = softmax"]),
        ("objective.beta", [r"default +50 \(released: 40\)"]),
        ("resources.gpu", [r"type +float or none", r"in +\[resources\]"]),
    ],
)
def test_a_setting_is_explained(name: str, told: list[str], goalgrid: Goalgrid, tmp_path: Path) -> None:
    text = goalgrid("settings", name, runs=tmp_path).stdout
    assert [part for part in told if not re.search(part, text)] == []


def test_a_beginning_narrows_and_json_has_every_field(goalgrid: Goalgrid, tmp_path: Path) -> None:
    told = json.loads(goalgrid("settings", "train", "--json", runs=tmp_path).stdout)
    assert {setting["name"].partition(".")[0] for setting in told} == {"train"}
    names = "name place of type default required released unit meaning allowed read_with"
    assert list(told[0]) == names.split()
