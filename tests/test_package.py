"""What is needed to use, cite and install the package: licence, citation, changes, a wheel that runs alone."""

import os
import subprocess
import sys
import tomllib
import venv
import zipfile
from importlib.metadata import version
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from goalgrid.app import app

from .conftest import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
CITATION = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))


def test_there_is_one_version() -> None:
    changes = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert PROJECT["version"] == version("goalgrid") == CITATION["version"]
    assert f"## {PROJECT['version']}" in changes
    assert CliRunner().invoke(app, ["--version"]).stdout.startswith(f"goalgrid {PROJECT['version']}")


def test_the_licence_is_the_one_that_is_named() -> None:
    assert PROJECT["license"] == CITATION["license"] == "Apache-2.0"
    assert "Apache License\n                           Version 2.0" in (ROOT / "LICENSE").read_text(encoding="utf-8")


def test_the_four_papers_are_cited() -> None:
    assert len(CITATION["references"]) == 4
    for reference in CITATION["references"]:
        assert {"type", "title", "authors", "year"} <= reference.keys()
        assert all(author.keys() == {"family-names", "given-names"} for author in reference["authors"])


@pytest.mark.slow
def test_a_wheel_trains_in_an_environment_and_a_folder_without_the_sources(tmp_path: Path) -> None:
    """The requirements are those of this environment; the program is the wheel's."""
    build = [sys.executable, "-m", "pip", "wheel", "--no-deps", "--quiet", "--wheel-dir", str(tmp_path), str(ROOT)]
    subprocess.run(build, check=True)
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        assert {f"{room}/py.typed" for room in ("goalgrid", "grid", "objectives")} <= set(archive.namelist())
    venv.create(tmp_path / "env", with_pip=True)
    python = tmp_path / "env" / "bin" / "python"
    subprocess.run([python, "-m", "pip", "install", "--no-deps", "--quiet", wheel], check=True)
    requirements = next(path for path in sys.path if path.endswith("site-packages"))
    environment = {**os.environ, "PYTHONPATH": requirements}
    where = "import goalgrid; print(goalgrid.__file__)"
    run = {"cwd": tmp_path, "env": environment, "check": True, "capture_output": True, "text": True}
    assert str(tmp_path) in subprocess.run([python, "-c", where], **run).stdout
    few = ["--set", "seeds=[0]", "--set", 'objectives=["con_con"]', "--set", "train.epochs=1"]
    assert "Recall" in subprocess.run([python, "-m", "goalgrid", "run", "demo", *few], **run).stdout
    assert len(list(tmp_path.glob("runs/trials/*/record.parquet"))) == 1
