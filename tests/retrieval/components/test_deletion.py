"""A system is a folder that can be deleted: all else plans as before, and what needs it says so."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.program import ROOT, copied

PLAN = """
import json
from goalgrid.grid import catalog
from goalgrid.grid.errors import UserError
from goalgrid.grid.expansion import expand, trials_of
from goalgrid.grid.gridfile import load
from goalgrid.grid.identity import digest

def told(name, *words):
    try:
        return digest(sorted(trial.id for trial in trials_of(expand(load(name, words)))))
    except UserError as error:
        return str(error)

said = {name: told(name) for name in catalog.names("presets")}
said["twins"] = told("demo", "model.networks=twins")
said["vsrn"] = told("demo", "recipes=vsrn-tiny")
print(json.dumps(said))
"""
QUOTED = {"selhn-table4", "unified-table3", "unified-table7"}
"""Grids that train losses whose numbers their papers quote."""
NEEDED_BY = {
    "aoq": (QUOTED, "'offline-negatives' is not installed"),
    "ncr": ({"ncr-noise", *QUOTED}, "'clean-probabilities' is not installed"),
    "meta_spn": ({"meta-spn"}, "'learnt-weights' is not installed"),
    "twins": ({"twins"}, "'twins' is not installed"),
    "video": ({"unified-table4"}, "unknown recipe 'ce'"),
    "vsrn": ({"vsrn", "goal-table6", "selhn-table5", *QUOTED}, "unknown recipe 'vsrn"),
    "xvlm": ({"goal-table6"}, "unknown recipe 'xvlm"),
}
"""Grids that need each system, and what they say without it."""


def plans(folder: Path) -> dict[str, str]:
    """A digest of the ids of each shipped grid, or what is wrong with it, by the program in this folder."""
    environment = {"PYTHONPATH": str(folder), "PATH": ""}
    done = subprocess.run([sys.executable, "-c", PLAN], cwd=folder, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    said: dict[str, str] = json.loads(done.stdout)
    return said


@pytest.fixture(scope="module")
def whole() -> dict[str, str]:
    return plans(ROOT)


@pytest.mark.gate
@pytest.mark.parametrize("system", NEEDED_BY)
def test_without_its_folder_all_other_grids_plan_with_the_same_ids(
    system: str, whole: dict[str, str], tmp_path: Path
) -> None:
    shutil.rmtree(copied(tmp_path) / "retrieval" / "components" / system)
    without = plans(tmp_path)
    changed = {name for name in whole if without[name] != whole[name]}
    grids, message = NEEDED_BY[system]
    assert changed >= grids
    for name in changed:
        assert message in without[name], f"{name}: {without[name]}"
        assert "Traceback" not in without[name]
