"""Provenance: what counts as the code of a result, where it came from, and when a finished trial is stale."""

import json
import platform
import shutil
import subprocess
import sys
from importlib.metadata import version
from operator import attrgetter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from goalgrid.grid.expansion import Cell, Trial
from goalgrid.results.records import provenance
from goalgrid.results.records.provenance import Stale
from tests.program import copied

ROOT = Path(__file__).parents[3]
CODE = provenance.versioned("0123456789abcdef" * 4)
AWAY = dict.fromkeys(("one", "two", "three"), "")
"""No data are on this machine."""


def stale(rows: list[dict[str, Any]], data: dict[str, str] = AWAY, libraries: str = "") -> dict[str, list[Stale]]:
    """The stale ones of these records; each trial loads these libraries."""
    shared: dict[str, Any] = {name: SimpleNamespace(data=data[name], libraries=libraries.split()) for name in AWAY}
    cells = [Cell("", "", "", (), (Trial(name, settings, 0),)) for name, settings in shared.items()]
    return provenance.stale(
        {row["trial_id"]: row for row in rows}, cells, provenance.Now(lambda _: CODE, attrgetter("data"))
    )


def of_versions(python: str = platform.python_version(), **versions: str) -> dict[str, Any]:
    """A record with these versions."""
    return row(environment=json.dumps({"versions": versions, "python": python}))


def row(**different: Any) -> dict[str, Any]:
    """A record of now, but for what is different."""
    versions = {"torch": version("torch"), "ray": "0.1"}
    common = {
        "trial_id": "one",
        "dataset": "shapes",
        "recipe": "cnn-bow",
        "data_fingerprint": "d",
        "code_fingerprint": CODE,
        "environment": json.dumps({"versions": versions, "python": platform.python_version()}),
        "finished_at": "2026-01-01T00:00:00+00:00",
    }
    return common | different


def test_what_was_trained_as_now_is_not_stale() -> None:
    assert stale([row()]) == {}


def test_other_code_is_named() -> None:
    other = provenance.versioned("f" * 64)
    found = stale([row(code_fingerprint=other)])
    assert found == {"one": [Stale("code", "trained with older code")]}


def test_a_record_from_before_says_that_code_was_compared_in_another_way() -> None:
    ((found,),) = stale([row(code_fingerprint=CODE.partition(":")[2])]).values()
    assert found.cause == "code"
    assert "compared code differently" in found.what


def test_the_version_that_changed_is_named_and_no_other() -> None:
    ((reason,),) = stale([of_versions("3.0.0", torch="1.0", ray="0.1")]).values()
    assert reason == Stale("environment", f"torch 1.0 -> {version('torch')}")


def test_a_version_counts_for_trials_that_load_the_package() -> None:
    old = of_versions(pillow="1.0", transformers="4.0")
    assert stale([old]) == {}
    ((reason,),) = stale([old], libraries="pillow").values()
    assert reason == Stale("environment", f"pillow 1.0 -> {version('pillow')}")


def test_another_python_or_patch_of_numpy_is_a_note_and_another_numpy_makes_stale() -> None:
    now = version("numpy")
    patch, minor = f"{now.rpartition('.')[0]}.99", "1.26.0"
    assert stale([of_versions("3.0.0", numpy=patch)]) == {}
    noted = provenance.patched({"one": of_versions("3.0.0", numpy=patch)})
    assert noted == {"one": f"python 3.0.0 -> {platform.python_version()}, numpy {patch} -> {now}"}
    ((reason,),) = stale([of_versions(numpy=minor)]).values()
    assert reason.what == f"numpy {minor} -> {now}"
    assert provenance.patched({"one": of_versions(numpy=minor)}) == provenance.patched({"one": row()}) == {}


def test_the_latest_trial_decides_which_data_are_meant() -> None:
    later = row(trial_id="two", data_fingerprint="e", finished_at="2026-01-02T00:00:00+00:00")
    elsewhere = row(trial_id="three", recipe="fc-bow", data_fingerprint="f")
    found = stale([later, row(), elsewhere])
    assert found == {"one": [Stale("data", "trained on older data than the latest trial: d -> e")]}


def test_the_data_at_hand_decide_where_there_are_any() -> None:
    here = dict.fromkeys(AWAY, "2:here")
    rows = [
        row(data_fingerprint="2:here+weights"),
        row(trial_id="two", data_fingerprint="2:there", finished_at="2026-01-02T00:00:00+00:00"),
    ]
    found = stale(rows, here)
    assert found == {"two": [Stale("data", "trained on data that changed since: 2:there -> 2:here")]}
    (before,) = stale([row(data_fingerprint="d")], here)["one"]
    assert "compared data differently" in before.what


def test_every_source_counts_for_the_nodes_of_a_cluster(tmp_path: Path) -> None:
    copied(tmp_path)
    before = program(tmp_path)
    append(tmp_path / "goalgrid" / "reports" / "report.py")
    assert program(tmp_path) != before


def test_a_checkout_is_the_same_program_as_what_is_installed_from_it(tmp_path: Path) -> None:
    """In a checkout, packages inside the program's are links."""
    copied(tmp_path / "checkout")
    shutil.copytree(tmp_path / "checkout" / "goalgrid", tmp_path / "installed" / "goalgrid")
    assert program(tmp_path / "checkout") == program(tmp_path / "installed")


def append(path: Path) -> None:
    path.write_text(path.read_text(encoding="utf-8") + "\n# changed\n", encoding="utf-8")


def program(folder: Path) -> str:
    """Fingerprint of the source in this folder, by a process that imports none of it but `results`."""
    script = (
        "import sys; from goalgrid.results.records import provenance; print(provenance.program_fingerprint());"
        "assert not {'torch', 'goalgrid.objectives', 'goalgrid.retrieval.model', 'goalgrid.runners'} & set(sys.modules)"
    )
    finished = subprocess.run(
        [sys.executable, "-c", script], cwd=folder, capture_output=True, text=True, env={"PYTHONPATH": str(folder)}
    )
    assert finished.returncode == 0, finished.stderr
    return finished.stdout


@pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")
def test_a_git_checkout_says_its_commit_and_whether_it_was_changed(tmp_path: Path) -> None:
    copied(tmp_path)
    assert source(tmp_path) is None
    identity = ("-c", "user.name=n", "-c", "user.email=e")
    for arguments in (("init", "-q"), ("add", "."), (*identity, "commit", "-qm", "first")):
        subprocess.run(["git", *arguments], cwd=tmp_path, check=True)
    clean = source(tmp_path)
    assert clean
    assert len(clean["commit"]) == 40
    assert clean["dirty"] is False
    append(tmp_path / "grid" / "store" / "home.py")
    assert source(tmp_path) == clean | {"dirty": True}


def source(folder: Path) -> Any:
    script = "import json; from goalgrid.results.records import provenance; print(json.dumps(provenance.source()))"
    finished = subprocess.run([sys.executable, "-c", script], cwd=folder, capture_output=True, text=True, check=True)
    return json.loads(finished.stdout)


def test_a_trial_notes_its_source_and_its_device() -> None:
    noted = provenance.environment("cuda", "a GPU", 2)
    assert (noted["device"], noted["device_type"], noted["threads"]) == ("a GPU", "cuda", 2)
    assert provenance.environment("cpu", "", 1)["device"]
    assert json.dumps(noted)
