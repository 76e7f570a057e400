"""The documents: short, without dead links, and naming only verbs that exist."""

import re
import subprocess
import tomllib
from pathlib import Path

import pytest
import yaml
from typer.main import get_command

from goalgrid.app import app
from grid.expansion import expand, trials_of
from grid.gridfile import load
from grid.resources import Reliability, Resources
from runners.trial.retries import POLICY

ROOT = Path(__file__).parent.parent
DOCUMENTS = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    *(ROOT / "docs").rglob("*.md"),
    *(ROOT / "benchmarks").glob("*.md"),
]
LINES = {"README.md": 120, "CONTRIBUTING.md": 40}


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_lead_somewhere(path: Path) -> None:
    links = re.findall(r"\]\(([^)#]+)\)", path.read_text(encoding="utf-8"))
    dead = [link for link in links if not link.startswith("http") and not (path.parent / link).exists()]
    assert dead == []


@pytest.mark.parametrize("name", LINES)
def test_the_first_pages_stay_short(name: str) -> None:
    assert len((ROOT / name).read_text(encoding="utf-8").splitlines()) <= LINES[name]


def test_the_grid_file_shown_is_a_grid(tmp_path: Path) -> None:
    (shown,) = re.findall(r"```toml\n(.*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), re.DOTALL)
    (tmp_path / "shown.toml").write_text(shown)
    assert len(trials_of(expand(load(str(tmp_path / "shown.toml"))))) == 2 * (15 + 10) * 3


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_verb_that_is_named_exists(path: Path) -> None:
    verbs = set(get_command(app).commands)
    assert set(re.findall(r"^(?:\| `)?goalgrid ([a-z]+)", path.read_text(encoding="utf-8"), re.MULTILINE)) <= verbs


def test_the_failures_shown_are_the_policy() -> None:
    page = (ROOT / "docs" / "reliability.md").read_text(encoding="utf-8")
    shown = re.findall(r"^\| ([a-z-]+) \| (\d+)(, the second alone on the machine)? \| (.*) \|$", page, re.MULTILINE)
    policy = [(failure.value, str(p.tries), p.alone, p.advice) for failure, p in POLICY.items()]
    assert [(name, tries, bool(alone), advice) for name, tries, alone, advice in shown] == policy


def test_the_reliability_shown_is_accepted() -> None:
    page = (ROOT / "docs" / "reliability.md").read_text(encoding="utf-8")
    (shown,) = re.findall(r"```toml\n(.*?)```", page, re.DOTALL)
    assert Reliability.model_validate(tomllib.loads(shown)["reliability"]).checkpoint_steps == 1000


def shown(language: str, document: str) -> list[str]:
    """The blocks of a language in a document."""
    return re.findall(rf"```{language}\n(.*?)```", (ROOT / document).read_text(encoding="utf-8"), re.DOTALL)


def test_what_clusters_are_told_can_be_read() -> None:
    for script in shown("bash", "docs/clusters.md"):
        subprocess.run(["bash", "-n"], input=script, text=True, check=True)
    for content in shown("yaml", "docs/clusters.md"):
        assert yaml.safe_load(content)["spec"]["rayClusterSpec"]["workerGroupSpecs"]
    for content in shown("toml", "docs/clusters.md"):
        Resources.model_validate(tomllib.loads(content)["resources"])
