"""`goalgrid settings`: nothing that a grid file may set is missing, and docs/settings.md says the same."""

import json
import re
from pathlib import Path

import pytest

from goalgrid.grid.evaluations import Evaluate
from goalgrid.grid.names import dotted_names
from goalgrid.grid.notes import Notes
from goalgrid.grid.resources import Budget, Reliability, Resources
from goalgrid.grid.select import Select
from goalgrid.shipped import settings_list

from ...conftest import ROOT, Goalgrid

WRITE = "goalgrid settings --format markdown > docs/settings.md"


def test_every_setting_of_a_grid_file_is_listed_with_its_meaning() -> None:
    listed = settings_list.settings()
    names = {setting.name for setting in listed}
    running = {f"resources.{name}" for name in Resources.model_fields}
    running |= {f"reliability.{name}" for name in Reliability.model_fields}
    running |= {f"budget.{name}" for name in Budget.model_fields}
    running |= {f"select.{name}" for name in Select.model_fields}
    running |= {f"evaluate.{name}" for name in Evaluate.model_fields}
    running |= {f"notes.{name}" for name in Notes.model_fields}
    assert names == {*dotted_names(), *running, "data.NAME.root"}
    assert [setting.name for setting in listed if len(setting.meaning) < 5 or setting.meaning.endswith(".")] == []


def test_the_page_is_what_the_models_say() -> None:
    page = (ROOT / "docs" / "settings.md").read_text(encoding="utf-8")
    now = "\n".join(settings_list.markdown(settings_list.settings())) + "\n"
    assert page == now, f"docs/settings.md is out of date; write it: {WRITE}"


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


def test_a_beginning_narrows_and_json_has_the_keys_that_the_help_names(goalgrid: Goalgrid, tmp_path: Path) -> None:
    told = json.loads(goalgrid("settings", "train", "--json", runs=tmp_path).stdout)
    assert {setting["name"].partition(".")[0] for setting in told} == {"train"}
    assert list(told[0]) == re.findall(r"\w+", settings_list.JSON.partition(": ")[2])
