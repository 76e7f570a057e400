"""Code of a grid that somebody else ran is named and not run, until --trust-code says so."""

import os
import stat
from pathlib import Path

import pytest

import goalgrid as public
from goalgrid.grid import plugins, trusted_code
from goalgrid.grid.errors import UserError
from goalgrid.grid.expansion import expand, trials_of
from goalgrid.grid.gridfile import load
from goalgrid.grid.store.home import Home
from goalgrid.grid.store.saved_grid import save_grid

from ..conftest import Goalgrid

LOSS = """
from pathlib import Path
import goalgrid

Path({ran!r}).touch()

@goalgrid.objective("theirs", on="scores")
def theirs(scores):
    "sum"
    return scores.sum()
"""
GRID = """
name = "theirs"
uses = ["./theirs.py"]
datasets = ["shapes"]
recipes = ["cnn-bow"]
objectives = ["theirs"]
seeds = [0, 1]
"""


@pytest.fixture
def ran(tmp_path: Path) -> Path:
    """The file that the stranger's code writes when it runs."""
    return tmp_path / "ran"


@pytest.fixture
def theirs(tmp_path: Path, ran: Path, monkeypatch: pytest.MonkeyPatch) -> Home:
    """A runs folder with a grid that another user ran, whose file is on this machine, too."""
    (tmp_path / "theirs.py").write_text(LOSS.format(ran=str(ran)), encoding="utf-8")
    (tmp_path / "theirs.toml").write_text(GRID, encoding="utf-8")
    home = Home(tmp_path / "theirs")
    another_user(monkeypatch, tmp_path / "stranger")
    grid = load(str(tmp_path / "theirs.toml"))
    save_grid(grid, trials_of(expand(grid)), home)
    another_user(monkeypatch, tmp_path / "me")
    ran.unlink()
    return home


def another_user(monkeypatch: pytest.MonkeyPatch, home: Path) -> None:
    monkeypatch.setattr(plugins, "_imported", {})
    monkeypatch.setenv("XDG_STATE_HOME", str(home))
    monkeypatch.setattr(trusted_code, "_named", set())


@pytest.mark.parametrize(
    "words",
    [
        ("status", "theirs"), ("table", "theirs"), ("plan", "theirs"), ("report", "theirs"), ("resume", "theirs"),
        ("export", "theirs", "out"), ("effects", "theirs"), ("compare", "theirs", "--replaced"),
        ("plan", "theirs/grids/theirs/grid.toml"),
    ],
)  # fmt: skip
def test_no_verb_runs_a_strangers_code(
    words: tuple[str, ...], theirs: Home, ran: Path, goalgrid: Goalgrid, tmp_path: Path
) -> None:
    ended = goalgrid(*words, *(("--here",) * (words[0] == "resume")), runs=theirs.path, folder=tmp_path)
    assert ended.returncode == 2
    assert f"runs code you have not approved on this machine: {tmp_path / 'theirs.py'}, 10 lines" in ended.stderr
    assert "to run it and approve it for later, add --trust-code" in ended.stderr
    assert ("theirs: 2 trials: 2 planned" in ended.stdout) is (words[0] == "status")
    assert not ran.exists()


def test_merge_leaves_a_grid_with_code_out_and_takes_the_others(
    theirs: Home, ran: Path, goalgrid: Goalgrid, tmp_path: Path
) -> None:
    plain = load("demo")
    save_grid(plain, trials_of(expand(plain)), theirs)
    for words in ((), ("--dry-run",)):
        merged = goalgrid("merge", str(theirs.path), *words, runs=tmp_path / "mine")
        assert merged.returncode == 3
        assert "demo: 0 trials done" in merged.stdout
        assert "left out: grid" in merged.stderr
        assert "runs code you have not approved on this machine" in merged.stderr
        assert not ran.exists()


def test_trusted_code_runs_and_is_remembered(theirs: Home, ran: Path, goalgrid: Goalgrid) -> None:
    trusted = goalgrid("status", "theirs", "--trust-code", runs=theirs.path)
    assert "theirs: 2 trials: 2 planned" in trusted.stdout
    assert ran.exists()
    assert goalgrid("status", "theirs", runs=theirs.path).stdout == trusted.stdout
    script = goalgrid("slurm", "theirs", runs=theirs.path).stdout
    assert f"run --launch {theirs.path / 'grids' / 'theirs' / 'launches'}" in script
    assert "--trust-code" in script, "a job may run where this user has another home"
    assert "--trust-code" not in goalgrid("slurm", "demo", runs=theirs.path).stdout


def test_trusted_code_is_the_text_of_the_grid_not_what_lies_at_its_path(
    theirs: Home, ran: Path, goalgrid: Goalgrid, tmp_path: Path
) -> None:
    at_the_path = tmp_path / "theirs.py"
    at_the_path.write_text(LOSS.format(ran=str(tmp_path / "other")), encoding="utf-8")
    file = str(theirs.grid("theirs").grid)
    planned = goalgrid("plan", "theirs", "--trust-code", runs=theirs.path)
    which = "the text saved with the grid runs, since no grid of yours names the file."
    assert f"warning: {at_the_path} differs from the text saved with grid {file!r}: {which}" in planned.stderr
    for words in (("theirs",), (file,), (file, "--trust-code")):  # the flag is remembered for the text alone
        assert goalgrid("plan", *words, runs=theirs.path).returncode == 0
    assert ran.exists()
    assert not (tmp_path / "other").exists()


def test_a_text_that_one_never_named_runs_not_even_at_a_path_of_ones_own(
    theirs: Home, ran: Path, goalgrid: Goalgrid, tmp_path: Path
) -> None:
    """Where the file is gone, the grid's text would stand for it."""
    mine = tmp_path / "theirs.py"
    mine.write_text(LOSS.format(ran=str(tmp_path / "other")), encoding="utf-8")
    assert goalgrid("plan", str(tmp_path / "theirs.toml"), runs=tmp_path / "mine").returncode == 0
    status = goalgrid("status", "theirs", runs=theirs.path)
    assert status.returncode == 3, "the file as it is here"
    assert "grid.toml': the file runs." in status.stderr
    assert not ran.exists()
    mine.unlink()
    assert goalgrid("status", "theirs", runs=theirs.path).returncode == 2
    assert not ran.exists()


def test_a_grid_of_ones_own_runs_without_a_word(theirs: Home, ran: Path, goalgrid: Goalgrid, tmp_path: Path) -> None:
    (tmp_path / "theirs.toml").rename(tmp_path / "mine.toml")
    assert goalgrid("plan", str(tmp_path / "mine.toml"), runs=tmp_path / "mine").returncode == 0
    assert ran.exists()


def test_python_asks_for_trust_too(theirs: Home, ran: Path) -> None:
    with pytest.raises(UserError, match="you have not approved"):
        public.load("theirs", theirs.path)
    assert not ran.exists()
    assert len(public.load("theirs", theirs.path, trust_code=True).trials) == 2


def test_others_can_add_nothing_to_what_one_trusts(
    theirs: Home, ran: Path, goalgrid: Goalgrid, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Under any umask; a list that others could write, or that is not this user's, counts as empty and is replaced."""
    file = tmp_path / "state" / "goalgrid" / "trusted.txt"
    another_user(monkeypatch, tmp_path / "state")
    before = os.umask(0)
    try:
        trusted_code.remember("mine")
    finally:
        os.umask(before)
    assert [stat.S_IMODE(path.stat().st_mode) for path in (file, file.parent)] == [0o600, 0o700]
    source = (tmp_path / "theirs.py").read_text()
    for mode in (0o602, 0o620, 0o666):
        file.write_text(f"{trusted_code._digest(source)}\n{trusted_code._digest(str(tmp_path / 'theirs.py'))}\n")
        file.chmod(mode)
        assert goalgrid("status", "theirs", runs=theirs.path).returncode == 2
        assert not ran.exists()
    trusted_code.remember("again")
    assert file.read_text() == f"{trusted_code._digest('again')}\n"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    trusted_code.remember("more")
    another_user(monkeypatch, tmp_path / "state")
    assert trusted_code.named("again")
    assert trusted_code.named("more")
    assert not trusted_code.named(source)
