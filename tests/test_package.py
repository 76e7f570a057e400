"""What is needed to use, cite and install the package: licence, citation, changes, a wheel that runs alone."""

import os
import re
import shutil
import subprocess
import sys
import tomllib
import venv
from importlib.metadata import version
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from goalgrid.cli.app import app

from .conftest import ROOT
from .program import ROOMS, copied

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
CPU = {"OMP_NUM_THREADS": "1"}
CITATION = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))


def test_there_is_one_version() -> None:
    changes = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert PROJECT["version"] == version("goalgrid") == CITATION["version"]
    assert f"## {PROJECT['version']}" in changes
    assert CliRunner().invoke(app, ["--version"]).stdout.startswith(f"goalgrid {PROJECT['version']}")


def test_the_licence_is_the_one_that_is_named() -> None:
    assert PROJECT["license"] == CITATION["license"] == "Apache-2.0"
    assert "Apache License\n                           Version 2.0" in (ROOT / "LICENSE").read_text(encoding="utf-8")


def test_the_citation_leads_to_the_repository() -> None:
    assert CITATION["url"] == CITATION["repository-code"] == PROJECT["urls"]["Source"]


def test_the_four_papers_are_cited() -> None:
    assert len(CITATION["references"]) == 4
    for reference in CITATION["references"]:
        assert {"type", "title", "authors", "year"} <= reference.keys()
        assert all(author.keys() == {"family-names", "given-names"} for author in reference["authors"])


def instructions() -> list[tuple[str, str]]:
    """The instructions of the Dockerfile with what they say, lines joined."""
    text = re.sub(r"^#.*\n", "", (ROOT / "Dockerfile").read_text(encoding="utf-8"), flags=re.MULTILINE)
    lines = text.replace("\\\n", " ").splitlines()
    return [(line.split()[0], line.partition(" ")[2].strip()) for line in lines if line.strip()]


def test_the_image_copies_what_is_here() -> None:
    copied = [
        source
        for name, text in instructions()
        if name == "COPY" and "--from" not in text
        for source in text.split()[:-1]
    ]
    assert all((ROOT / source).exists() for source in copied)
    ignored = (ROOT / ".dockerignore").read_text(encoding="utf-8").split()
    packed = {"LICENSE", "README.md", "pyproject.toml", "constraints.txt", "goalgrid", "grid", "runners"}
    assert not packed.intersection(ignored)
    assert {".git", ".venv", "tests"} <= set(ignored)


def test_the_workflow_gives_targets_of_the_makefile() -> None:
    workflow = yaml.safe_load((ROOT / ".github" / "workflows" / "versions.yml").read_text(encoding="utf-8"))
    matrix = workflow["jobs"]["versions"]["strategy"]["matrix"]
    commands = [step["run"] for job in workflow["jobs"].values() for step in job["steps"] if "run" in step]
    targets = {command.removeprefix("make ") for command in commands} - {"${{ matrix.target }}"} | {*matrix["target"]}
    made = re.findall(r"^(\w+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    assert targets == {".ci/run", "lowest", "newest"}
    assert targets <= {*made, ".ci/run"}
    assert os.access(ROOT / ".ci" / "run", os.X_OK)
    tried = {name.rpartition(" ")[2] for name in PROJECT["classifiers"] if re.search(r":: 3\.\d+$", name)}
    assert tried <= {*matrix["python"]}


def test_hadolint_finds_nothing_in_the_dockerfile() -> None:
    linter = Path(sys.executable).with_name("hadolint")
    if not linter.exists():
        pytest.skip("hadolint is not installed")
    finished = subprocess.run([linter, ROOT / "Dockerfile"], capture_output=True, text=True)
    assert (finished.returncode, finished.stdout) == (0, "")


@pytest.mark.slow
def test_the_image_is_built_and_trains(tmp_path: Path) -> None:
    if subprocess.run(["docker", "info"], capture_output=True).returncode:
        pytest.skip("no Docker daemon answers")
    subprocess.run(["docker", "build", "--tag", "goalgrid-test", str(ROOT)], check=True)
    tmp_path.chmod(0o777)
    run = ["docker", "run", "--rm", "--shm-size=1g", f"--volume={tmp_path}:/work", "goalgrid-test", "run", "demo"]
    assert (
        "Recall"
        in subprocess.run([*run, "--only", "objective=con_con seed=0"], check=True, stdout=-1, text=True).stdout
    )


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A source distribution, and a wheel that was built from it."""
    folder = tmp_path_factory.mktemp("dist")
    subprocess.run([sys.executable, "-m", "build", "--outdir", str(folder), str(ROOT)], check=True, capture_output=True)
    return folder


@pytest.mark.slow
def test_the_quick_tests_pass_where_the_sdist_was_unpacked(built: Path, tmp_path: Path) -> None:
    (file,) = built.glob("*.tar.gz")
    subprocess.run(["tar", "xzf", file, "--strip-components=1", "-C", tmp_path], check=True)
    tracked = subprocess.run(["git", "ls-files"], cwd=ROOT, check=True, capture_output=True, text=True).stdout
    assert [name for name in tracked.splitlines() if not (tmp_path / name).exists()] == []
    (quick,) = re.findall(r"^QUICK +:= (.*)", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    subprocess.run(
        [sys.executable, "-m", "pytest", *quick.split(), "-n", "2", "-p", "no:cacheprovider"],
        cwd=tmp_path, env={**os.environ, "PYTHONPATH": "."}, check=True,
    )  # fmt: skip


def without_links(folder: Path) -> Path:
    """The program as git checks it out with core.symlinks=false, and as many unpack a zip: links are files."""
    copied(folder)
    for name in ("pyproject.toml", "setup.py", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, folder)
    for name in NAMES:
        (folder / "goalgrid" / name).unlink()
        (folder / "goalgrid" / name).write_text(f"../{name}")
    return folder


def test_a_checkout_without_links_says_what_to_do(tmp_path: Path) -> None:
    command = [sys.executable, "-c", "import goalgrid, goalgrid.grid.errors as errors; print(errors.__file__)"]
    alone = {"cwd": without_links(tmp_path), "capture_output": True, "text": True, "env": {**os.environ, **CPU}}
    refused = subprocess.run(command, **alone)
    assert refused.returncode == 1
    assert refused.stderr.splitlines()[-1].startswith(
        f"ImportError: {tmp_path / 'goalgrid'} lacks the symbolic links to goalgrid's packages: this checkout was "
        "unpacked from a zip or cloned with core.symlinks=false. Create them with: make links. "
    )
    shutil.copy(ROOT / "Makefile", tmp_path)
    subprocess.run(["make", "links"], cwd=tmp_path, check=True, capture_output=True)
    imported = subprocess.run(command, **alone)
    assert imported.stdout.strip() == str(tmp_path / "goalgrid" / "grid" / "errors" / "__init__.py")


@pytest.mark.gate
def test_a_zip_without_links_installs_the_whole_program(tmp_path: Path) -> None:
    shutil.make_archive(str(tmp_path / "goalgrid"), "zip", without_links(tmp_path / "tree"))
    install = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-build-isolation", "--no-compile"]
    subprocess.run([*install, "--target", tmp_path / "site", tmp_path / "goalgrid.zip"], check=True)
    whole = {
        path.relative_to(ROOT) if room == "goalgrid" else Path("goalgrid", path.relative_to(ROOT))
        for room in ROOMS
        for path in (ROOT / room).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    installed = (path.relative_to(tmp_path / "site") for path in (tmp_path / "site" / "goalgrid").rglob("*"))
    assert {path for path in installed if (tmp_path / "site" / path).is_file()} == whole
    requirements = [path for path in sys.path if path.endswith("site-packages")]
    environment = {**os.environ, **CPU, "PYTHONPATH": os.pathsep.join([str(tmp_path / "site"), *requirements])}
    plan = [sys.executable, "-m", "goalgrid", "plan", "demo", "--runs", str(tmp_path / "runs")]
    where = "import goalgrid.grid; print(goalgrid.grid.__file__)"
    shown = subprocess.run([sys.executable, "-c", where], cwd=tmp_path, env=environment, stdout=-1, text=True)
    assert Path(shown.stdout.strip()) == tmp_path / "site" / "goalgrid" / "grid" / "__init__.py"
    planned = subprocess.run(plan, cwd=tmp_path, env=environment, check=True, stdout=-1, text=True).stdout
    assert planned.startswith("demo: 45 trials")


@pytest.mark.slow
def test_the_readme_of_a_distribution_leads_to_the_repository(built: Path, tmp_path: Path) -> None:
    (file,) = built.glob("*.tar.gz")
    page = subprocess.run(["tar", "xzOf", file, "--wildcards", "*/PKG-INFO", "--exclude=*.egg-info/*"], stdout=-1)
    links = re.findall(r"\]\(([^)#]+)\)", page.stdout.decode())
    assert len(links) > 20
    assert [link for link in links if not link.startswith("https://")] == []


NAMES = ("grid", "objectives", "results", "retrieval", "runners")
"""Packages inside goalgrid, and of anybody else."""
OWN_LOSS = """
import goalgrid
import objectives
@goalgrid.objective("mine")
def mine(t):
    \"\"\"The hinge again.\"\"\"
    return (t.s_neg - t.s_pos + objectives.MARGIN).clamp(min=0)
"""


def write_others(folder: Path) -> None:
    """Modules and packages of others, by the names of packages inside goalgrid."""
    for name in NAMES[1:]:
        (folder / name).mkdir(parents=True)
        (folder / name / "__init__.py").write_text("MARGIN = 0.2\n", encoding="utf-8")
    (folder / "grid.py").write_text("raise RuntimeError('a module of the user')\n", encoding="utf-8")


@pytest.mark.gate
def test_a_users_modules_of_our_packages_names_disturb_no_verb(tmp_path: Path) -> None:
    write_others(tmp_path)
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    shown = subprocess.run(
        [sys.executable, "-m", "goalgrid", "plan", "demo"],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
    )
    assert (shown.returncode, shown.stderr) == (0, "")
    names = "import goalgrid, objectives, results; print(goalgrid.objectives.build, objectives.MARGIN, results.MARGIN)"
    shown = subprocess.run([sys.executable, "-c", names], cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert (shown.returncode, shown.stderr) == (0, "")


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["*.whl", "*.tar.gz"])
def test_a_distribution_trains_beside_others_packages_of_the_same_names(kind: str, built: Path, tmp_path: Path) -> None:
    """The requirements are those of this environment; the program is that of the distribution."""
    (file,) = built.glob(kind)
    venv.create(tmp_path / "env", with_pip=True)
    programs, work = tmp_path / "env" / "bin", tmp_path / "work"
    alone = {**os.environ, "PYTHONPATH": ""}
    subprocess.run([programs / "pip", "install", "--no-deps", "--quiet", file], check=True, env=alone)
    (packages,) = (tmp_path / "env" / "lib").glob("*/site-packages")
    assert next(packages.glob("goalgrid-*/top_level.txt")).read_text().split() == ["goalgrid"]
    for folder in (packages, work):
        write_others(folder)
    (work / "own").mkdir()  # a file beside which `objectives` lay would be refused
    (work / "own" / "mine.py").write_text(OWN_LOSS)
    requirements = os.pathsep.join(path for path in sys.path if path.endswith("site-packages"))
    environment = {**os.environ, "PYTHONPATH": requirements, "OMP_NUM_THREADS": "1"}
    run = {"cwd": work, "env": environment, "check": True, "capture_output": True, "text": True}
    where = subprocess.run([programs / "python", "-c", "import goalgrid; print(goalgrid.__file__)"], **run).stdout
    assert Path(where.strip()).parent == packages / "goalgrid"
    assert (packages / "goalgrid" / "py.typed").exists()
    few = ["--set", "seeds=0", "--set", "train.epochs=1", "--mlflow-uri", ""]
    for command in ([programs / "goalgrid"], [programs / "python", "-m", "goalgrid"]):
        shown = subprocess.run([*command, "run", "demo", "--set", "objectives=con_con", *few], **run)
        assert "Recall" in shown.stdout
    own = ["--set", 'uses=["own/mine.py"]', "--set", "objectives=mine"]
    assert "Recall" in subprocess.run([programs / "goalgrid", "run", "demo", *own, *few], **run).stdout
    assert len(list(work.glob("runs/trials/*/record.parquet"))) == 2
