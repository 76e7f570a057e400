"""What a user names for a command to write: ours is replaced, nothing else is; devices and pipes are written into."""

import io
import os
import stat
import threading
from pathlib import Path

import numpy as np
import pytest

from goalgrid.grid.errors import UserError
from goalgrid.grid.store.home import Home
from goalgrid.grid.store.output_files import check_output, write_output
from goalgrid.results import renderers

from ..conftest import Goalgrid
from .conftest import Verb

COMPARED = {"md": "markdown", "tex": "latex", "csv": "csv", "txt": "terminal"}


@pytest.mark.parametrize("ending", renderers.ENDINGS.values())
def test_a_table_is_written_again_over_itself_and_over_nothing_else(
    ending: str, trained_pair: Home, verb: Verb, tmp_path: Path
) -> None:
    path = tmp_path / f"t.{ending}"
    for words in ((), ("--metric", "r5"), ()):
        verb("table", "demo", *words, "-o", str(path), runs=trained_pair)
    assert path.stat().st_size > 100
    path.write_bytes(b"a thesis, of years, and, more")
    with pytest.raises(UserError, match=r"exists and was not written by goalgrid; choose another name"):
        verb("table", "demo", "-o", str(path), runs=trained_pair)
    assert path.read_bytes() == b"a thesis, of years, and, more"


@pytest.mark.parametrize("ending", COMPARED)
def test_so_is_a_comparison(ending: str, trained_pair: Home, verb: Verb, tmp_path: Path) -> None:
    path = tmp_path / f"c.{ending}"
    words = ("compare", "demo", "demo", "--format", COMPARED[ending], "-o", str(path))
    for metric in ("r1", "r5"):
        verb(*words, "--metric", metric, runs=trained_pair)
    path.write_text("mine", encoding="utf-8")
    with pytest.raises(UserError, match="was not written by goalgrid"):
        verb(*words, runs=trained_pair)
    assert path.read_text() == "mine"


@pytest.mark.gate
@pytest.mark.parametrize("form", ["png", "pdf", "svg"])
def test_so_are_pictures(form: str, trained_pair: Home, goalgrid: Goalgrid, tmp_path: Path) -> None:
    drawn = {
        f"con_con.{form}": ("diagrams", "con_con"),
        f"training-cnn-bow-on-shapes.{form}": ("figures", "demo", "training"),
    }
    for name, words in drawn.items():
        assert goalgrid(*words, "--format", form, "-o", str(tmp_path), runs=trained_pair.path).returncode == 0
        check_output(tmp_path / name)
        (tmp_path / name).write_bytes(b"mine")
        ended = goalgrid(*words, "--format", form, "-o", str(tmp_path), runs=trained_pair.path)
        assert (ended.returncode, "was not written by goalgrid" in ended.stderr) == (2, True), ended.stderr
        assert (tmp_path / name).read_bytes() == b"mine"


@pytest.mark.gate
def test_so_are_reports_scripts_and_embeddings(pair: Home, verb: Verb, tmp_path: Path) -> None:
    trial = pair.trials()[0].trial_id
    for words in (
        ("report", "demo", "-o", "page.html"), ("slurm", "demo", "-o", "job.sh"),
        ("evaluate", "--trial", trial, "--embeddings", "e.npz"),
    ):  # fmt: skip
        path = tmp_path / words[-1]
        for _ in range(1 if words[0] == "report" else 2):  # --watch writes it again and again
            verb(*words[:-1], str(path), runs=pair)
        assert path.stat().st_size > 1000
        check_output(path)
        path.write_bytes(b"mine")
        with pytest.raises(UserError, match="was not written by goalgrid"):
            verb(*words[:-1], str(path), runs=pair)
        assert path.read_bytes() == b"mine"
    verb("evaluate", "--trial", trial, "--embeddings", str(tmp_path / "again.npz"), runs=pair)
    assert {"images", "texts"} <= set(np.load(io.BytesIO((tmp_path / "again.npz").read_bytes())))


def test_no_file_of_a_runs_folder_is_replaced_or_put_into_a_trial(pair: Home, verb: Verb) -> None:
    folder, grid = pair.trials()[0], pair.grid("demo")
    places = [
        folder.record, folder.done, folder.path / "new.tex", grid.grid, grid.trials, grid.results, grid.notes,
        pair.mark, pair.summaries, pair.path / "trash" / "x" / "t.tex", pair.path / "data" / "t.tex",
    ]  # fmt: skip
    for path in places:
        before = path.read_bytes() if path.exists() else None
        refused = (
            f"belongs to the runs folder {pair.path}; choose another file|its ending does not fit the format latex"
        )
        with pytest.raises(UserError, match=refused):
            verb("table", "demo", "--format", "latex", "-o", str(path), runs=pair)
        assert (path.read_bytes() if path.exists() else None) == before
    for path in (grid.tables / "goal.tex", grid.path / "mine.tex", pair.path / "papers" / "mine.tex"):
        verb("table", "demo", "--format", "latex", "-o", str(path), runs=pair)


def test_devices_and_pipes_stay_and_get_the_content(trained_pair: Home, verb: Verb, tmp_path: Path) -> None:
    pipe, null = tmp_path / "pipe", tmp_path / "null"
    os.mkfifo(pipe)
    null.symlink_to("/dev/null")
    read = list[bytes]()
    reader = threading.Thread(target=lambda: read.append(pipe.read_bytes()))
    reader.start()
    for path in (pipe, null):
        verb("table", "demo", "--format", "latex", "-o", str(path), runs=trained_pair)
    reader.join()
    assert read[0].startswith(b"% goalgrid table demo --format latex\n")
    assert stat.S_ISFIFO(pipe.stat().st_mode)
    assert stat.S_ISCHR(Path("/dev/null").stat().st_mode)
    assert null.is_symlink()


def test_a_link_stays_and_what_it_leads_to_is_written(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("new")
    for content in (b"goalgrid 1", b"goalgrid 2"):
        write_output(tmp_path / "link", content)
        assert (tmp_path / "new").read_bytes() == content
    assert (tmp_path / "link").is_symlink()
    (tmp_path / "itself").symlink_to("itself")
    for path in (tmp_path / "itself", tmp_path):
        with pytest.raises(UserError, match=r"is a folder|is a link to itself"):
            check_output(path)


@pytest.mark.parametrize("kept", ["index.html", "grids/demo.html"])
def test_a_site_leaves_pages_of_others(kept: str, trained_pair: Home, verb: Verb, tmp_path: Path) -> None:
    (tmp_path / kept).parent.mkdir(exist_ok=True)
    (tmp_path / kept).write_text("my page", encoding="utf-8")
    with pytest.raises(UserError, match="was not written by goalgrid"):
        verb("site", str(tmp_path), runs=trained_pair)
    assert (tmp_path / kept).read_text() == "my page"
