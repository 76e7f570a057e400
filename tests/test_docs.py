"""The documents: short, without dead links, and with commands that this version has."""

import importlib.util
import os
import re
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.main import get_command

from goalgrid.cli.app import app
from goalgrid.cli.options import HELP
from goalgrid.grid import catalog
from goalgrid.grid.expansion import expand, trials_of
from goalgrid.grid.gridfile import Grid, load
from goalgrid.grid.resources import Reliability, Resources
from goalgrid.listings.paper_rows import WITHOUT_NUMBERS
from goalgrid.results.reference.reading import table_names
from goalgrid.runners.trial.retries import POLICY
from tests.cases import every
from tests.pages import PAGES

ROOT = Path(__file__).parent.parent
DOCUMENTS = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    ROOT / "RELEASING.md",
    ROOT / "SECURITY.md",
    *(ROOT / "docs").rglob("*.md"),
    *(ROOT / "benchmarks").glob("*.md"),
]


@every("path", DOCUMENTS)
def test_links_lead_somewhere(path: Path) -> None:
    links = re.findall(r"\]\(([^)#]+)\)", path.read_text(encoding="utf-8"))
    dead = [link for link in links if not link.startswith("http") and not (path.parent / link).exists()]
    assert dead == []


@pytest.mark.parametrize("name", PAGES)
def test_a_page_is_what_the_program_knows(name: str) -> None:
    write = f"python -m tests.pages {name} > docs/{name}.md"
    page = (ROOT / "docs" / f"{name}.md").read_text(encoding="utf-8")
    assert page == "\n".join(PAGES[name]()) + "\n", f"docs/{name}.md is out of date; write it: {write}"


def test_the_grid_file_shown_is_a_grid(tmp_path: Path) -> None:
    (shown,) = re.findall(r"```toml\n(.*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), re.DOTALL)
    (tmp_path / "shown.toml").write_text(shown)
    assert len(trials_of(expand(load(str(tmp_path / "shown.toml"))))) == 2 * (15 + 10) * 3


def test_the_readme_counts_the_papers_tables() -> None:
    assert f"Shipped grids fill the papers' {len({*table_names()} - {WITHOUT_NUMBERS})} tables" in (
        ROOT / "README.md"
    ).read_text(encoding="utf-8")


BLOCKS = re.compile(r"^```(\w*)\n(.*?)^```", re.MULTILINE | re.DOTALL)
COMMAND = re.compile(r"(?:^|(?<=[\s;&(]))goalgrid +([a-z-].*)")
ENDS = {"|", "||", "&&", ";", "&", ">", ">>", "2>", "<"}


def commands(path: Path) -> list[list[str]]:
    """The words of all goalgrid commands in a document; in running text, a verb alone is a name and no command."""
    text = path.read_text(encoding="utf-8")
    blocks = [block for language, block in BLOCKS.findall(text) if language != "python"]
    lines = [line for block in blocks for line in block.replace("\\\n", " ").splitlines()]
    found = [words(line) for line in lines if COMMAND.search(line) and not line.lstrip().startswith("#")]
    spans = [words(" ".join(span.split())) for span in re.findall(r"`(goalgrid [a-z-][^`]*)`", BLOCKS.sub("", text))]
    return [*found, *(span for span in spans if len(span) > 1 + (span[0] == "data") or span[0] not in VERBS)]


def words(line: str) -> list[str]:
    """The words of the command in a line, up to its end for the shell."""
    (command,) = COMMAND.findall(line)
    split = shlex.split(command, comments=True)
    return split[: next((place for place, word in enumerate(split) if word in ENDS), None)]


VERBS: dict[str, Any] = get_command(app).commands  # type: ignore[attr-defined]


def parse(given: list[str]) -> tuple[str, dict[str, Any]]:
    """The verb and its parameters, as the command line itself reads them."""
    command: Any = get_command(app)
    name, *rest = given
    if name in {option for parameter in command.params for option in parameter.opts}:
        return name, {}
    while True:
        assert name in command.commands, f"no verb {name!r}"
        command = command.commands[name]
        if not hasattr(command, "commands"):
            read = command.make_context(name, rest, **HELP).params  # a command keeps the first names of its help
            named = [value for key in ("paper", "grid", "grids", "launch_folders") if (value := read.get(key))]
            assert named or "paper" not in read or name in ("table", "claims"), "Missing parameter: GRID or --paper"
            return name, read
        name, *rest = rest


def shipped_grids(read: dict[str, Any]) -> list[Grid]:
    """The shipped grids that a command names, with its changes."""
    names = [name for name in (read.get("grid"), *read.get("grids", ())) if name in catalog.names("presets")]
    return [load(name, read.get("set_", []), roots=read.get("root", [])) for name in names]


@every("path", DOCUMENTS)
def test_every_command_shown_is_a_command_of_this_version(path: Path) -> None:
    """Unknown verbs and options, missing arguments and wrong values fail; shipped grids are made with their changes."""
    wrong = []
    for given in commands(path):
        try:
            _, read = parse(given)
            own = any(change.startswith("uses=") for change in read.get("set_", []))  # files of the reader's
            if not read.get("reference") and not own:
                shipped_grids(read)
        except Exception as error:  # the class of its errors has another home in other versions of Typer
            wrong.append(f"goalgrid {shlex.join(given)}: {getattr(error, 'message', error)}")
    assert wrong == []


def gammas_of(grid: Grid, objective: str) -> dict[tuple[str, str], set[object]]:
    """The values of gamma that an objective is trained with, by data set and recipe."""
    found: dict[tuple[str, str], set[object]] = {}
    for cell in expand(grid):
        if cell.objective == objective:
            parameters = cell.trials[0].shared.objective.parameters
            found.setdefault((cell.dataset, cell.recipe), set()).add(parameters["gamma"])
    return found


def test_vlc_and_the_unified_loss_are_compared_at_one_gamma() -> None:
    """As in Unified §4.4 and §4.5. Where a grid sweeps gamma, VLC has one of the values of the Unified loss."""
    shipped = [grid for grid in map(load, catalog.names("presets")) if "infonce" in grid.objectives]
    read = [parse(given)[1] for path in DOCUMENTS for given in commands(path) if "infonce" in " ".join(given)]
    shown = [grid for each in read for grid in shipped_grids(each)]
    compared = [grid for grid in (*shipped, *shown) if "unified" in grid.objectives]
    assert len(compared) > 3
    for grid in compared:
        vlc, unified = gammas_of(grid, "infonce"), gammas_of(grid, "unified")
        assert all(vlc[place] <= unified[place] for place in vlc.keys() & unified.keys()), grid.name


def test_selhn_figure_1_is_of_the_three_models_that_the_paper_names() -> None:
    (row,) = re.findall(
        r"^\| SelHN Fig\. 1 .*$", (ROOT / "docs" / "papers.md").read_text(encoding="utf-8"), re.MULTILINE
    )
    (name,) = (name for name in catalog.names("presets") if f"`{name}`" in row)
    grid = load(name)
    said = [catalog.recipe(recipe).description for recipe in grid.recipes]
    assert [any(model in each for each in said) for model in ("VSE++", "SCAN", "SGRAF")] == [True] * len(said)
    assert (grid.datasets, grid.objectives) == (["flickr30k"], ["triplet-hn"])


def test_every_shipped_recipe_is_named() -> None:
    page = (ROOT / "docs" / "recipes.md").read_text(encoding="utf-8")
    assert [name for name in catalog.names("recipes") if f"`{name}`" not in page] == []


def test_a_wrong_command_in_a_document_is_found(tmp_path: Path) -> None:
    page = (
        "Text `goalgrid run` and `goalgrid rnu`.\n```\ngoalgrid run --root X  # why\ngoalgrid table demo | cat\n```\n"
    )
    (tmp_path / "page.md").write_text(f"{page}`goalgrid run\ndemo --heer`\n")
    found = commands(tmp_path / "page.md")
    assert found == [["run", "--root", "X"], ["table", "demo"], ["rnu"], ["run", "demo", "--heer"]]
    assert parse(found[1])[1]["grid"] == "demo"
    for given, message in ((found[0], "Missing parameter"), (found[2], "no verb 'rnu'"), (found[3], "--heer")):
        with pytest.raises(Exception, match=message):
            parse(given)


OTHERS = {"--exclude", "--no-kill", "--signal"}
"""Options of other programs."""


@every("path", DOCUMENTS)
def test_every_option_that_is_named_exists(path: Path) -> None:
    every = [get_command(app), *VERBS.values(), *VERBS["data"].commands.values()]
    known = {option for command in every for parameter in command.params for option in parameter.opts}
    named = re.findall(r"`(--[a-z][a-z-]*)", BLOCKS.sub("", path.read_text(encoding="utf-8")))
    assert sorted(set(named) - known - OTHERS - {"--help"}) == []


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


def test_a_commit_is_checked_by_the_commands_of_make() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    (repository,) = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text(encoding="utf-8"))["repos"]
    hooks = {hook["id"]: hook["entry"] for hook in repository["hooks"]}
    assert re.search(rf"^{hooks.pop('quick').partition(' ')[2]}: ", makefile, re.MULTILINE)
    assert [hook for hook in hooks.values() if f"\t{hook.replace('.venv/bin', '$(BIN)')}\n" not in makefile] == []


def test_what_clusters_are_told_can_be_read() -> None:
    for script in shown("bash", "docs/clusters.md"):
        subprocess.run(["bash", "-n"], input=script, text=True, check=True)
    for content in shown("yaml", "docs/clusters.md"):
        assert yaml.safe_load(content)["spec"]["rayClusterSpec"]["workerGroupSpecs"]
    for content in shown("toml", "docs/clusters.md"):
        Resources.model_validate(tomllib.loads(content)["resources"])


@pytest.mark.gate
def test_the_site_is_built_without_a_warning(tmp_path: Path) -> None:
    if not importlib.util.find_spec("mkdocs"):
        pytest.skip("the extra `docs` is not installed")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path)]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1", "PYTHONPATH": str(ROOT)}
    built = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert built.returncode == 0, built.stderr
    readme, api = ((tmp_path / name).read_text(encoding="utf-8") for name in ("overview/index.html", "api/index.html"))
    for link in ("benchmarks/RESULTS/", "CONTRIBUTING/", "LICENSE", "data/coco/", "pictures/table.png"):
        assert f'"../{link}"' in readme
    settings = re.compile(r"^\| `([\w.]+)`", re.MULTILINE).findall((ROOT / "docs" / "settings.md").read_text("utf-8"))
    topics = [path.read_text(encoding="utf-8") for path in (tmp_path / "settings").glob("*/index.html")]
    for name in set(settings):
        assert sum(f"<td><code>{name}</code>" in topic for topic in topics) == 1, name
    assert 'id="goalgrid.api.load"' in api
    assert 'id="goalgrid.objectives.build"' in api


MEASURED = re.compile(r"<!-- measured: (?P<of>.*?) -->\n+(?P<table>(?:\|.*\n)+)")
"""A table of Recall@1 with the grid, settings, processor and commit of its trials, for readers of the source."""


def measured(text: str) -> Iterator[tuple[tuple[str, ...], str]]:
    """The trials of each cell, and its text: by grid, settings, processor, commit, objective and direction."""
    for found in MEASURED.finditer(text):
        grid, settings, processor, commit = map(str.strip, found["of"].split("|"))
        head, _, *rows = (
            [cell.strip(" *`") for cell in line.strip("|\n").split("|")] for line in found["table"].splitlines()
        )
        for row in rows:
            for title, cell in zip(head[1:], row[1:], strict=True):
                if "→" in title:  # of GOAL's matrix
                    direction, objective = title[:5], f"{row[0].removeprefix('P^')}_{title.partition('T^')[2]}"
                    values, more = {direction: cell}, ""
                else:
                    values, objective = dict(zip(("Image", "Text "), cell.split(" / "), strict=True)), row[0]
                    more = title.replace("tau = ", "tau=").replace("`", "").replace(",", "")
                places = *sorted({*settings.split(), *more.split()}), objective
                yield from (((grid, processor, commit, *places, way), value) for way, value in values.items())


def contradictions(texts: Mapping[str, str]) -> list[str]:
    """Trials to which two pages give two numbers, with the numbers."""
    seen = dict[tuple[str, ...], dict[str, str]]()
    for page, text in sorted(texts.items()):
        for trials, value in measured(text):
            seen.setdefault(trials, {}).setdefault(value, page)
    return [f"{' '.join(trials)}: {values}" for trials, values in seen.items() if len(values) > 1]


def test_no_two_pages_give_one_trial_two_numbers() -> None:
    texts = {str(path.relative_to(ROOT)): path.read_text(encoding="utf-8") for path in DOCUMENTS}
    assert contradictions(texts) == []
    both = [set(dict(measured(texts[name]))) for name in ("docs/flickr8k.md", "docs/variants.md")]
    assert len(both[0] & both[1]) == 4, "con_cir in both variants and directions"
    page = texts["docs/variants.md"].replace("17.0 / 12.6 |", "17.0 / 12.5 |")
    (found,) = contradictions(texts | {"docs/variants.md": page})
    assert "paper seeds=0 tau=10 con_cir Text : {'12.6': 'docs/flickr8k.md', '12.5': 'docs/variants.md'}" in found


@pytest.mark.parametrize("name", ["comparing", "flickr8k", "variants"])
def test_pages_of_measured_recalls_name_the_processor_and_the_commit(name: str) -> None:
    text = (ROOT / "docs" / f"{name}.md").read_text(encoding="utf-8")
    for found in MEASURED.finditer(text):
        _, _, processor, commit = map(str.strip, found["of"].split("|"))
        prose = re.sub(r"<!--.*?-->", "", text)
        assert processor in prose
        assert commit in prose, f"{name}.md does not name commit {commit}"
    assert len(MEASURED.findall(text)) == text.count("<!-- measured:") > 0
