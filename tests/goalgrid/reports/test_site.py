"""`goalgrid site`: a folder whose pages lead to one another wherever it is put."""

import re
import shutil
from pathlib import Path

import pytest

from goalgrid.grid.errors import UserError
from goalgrid.grid.gridfile import load
from goalgrid.grid.store.home import Home
from goalgrid.reports.report import render
from goalgrid.results.export.report_page import Measured
from goalgrid.results.pages import page
from goalgrid.state.grid_state import GridState

from ...conftest import swapped
from ..conftest import Verb


def test_the_index_leads_to_each_page_and_back(pair: Home, verb: Verb, tmp_path: Path) -> None:
    folder, grid = tmp_path / "web", pair.grid("demo").grid
    grid.write_text(swapped(grid.read_text(), 'title = ""', 'title = "Does <b> matter?"'))
    shutil.copytree(grid.parent, pair.grid("other").path)
    pair.grid("other").grid.write_text(swapped(grid.read_text(), 'name = "demo"', 'name = "other"'))
    verb("site", str(folder), "demo", "--compare", "demo,other", runs=pair)
    assert {path.relative_to(folder) for path in folder.rglob("*.*")} == {Path("index.html"), Path("grids/demo.html")}
    index = (folder / "index.html").read_text(encoding="utf-8")
    assert '<a href="grids/demo.html">Does &lt;b&gt; matter?</a>' in index
    assert "has the best rsum" in index
    assert "demo: 2 trials: 2 done; last result <time" in index
    assert "<h2>other minus demo</h2>" in index
    assert "demo (A) and other (B): 2 cells compared" in index
    page = (folder / "grids" / "demo.html").read_text(encoding="utf-8")
    assert '<a href="../index.html">All grids</a>' in page
    links = re.findall(r'(?:href|src)="(?!data:|#)([^"]*)"', index + page)
    assert links == ["grids/demo.html", "../index.html"], "relative, and nothing of a network"


def test_the_index_says_how_many_blocks_it_leaves_to_a_grids_page() -> None:
    entry = {"name": "demo", "title": "demo", "headline": "", "date": ""}
    index = page("site.html", entries=[{**entry, "findings": ["found"] * number} for number in (2, 3, 6)], compared={})
    assert re.findall(r"\d more blocks? on its page", index) == [
        "1 more block on its page",
        "4 more blocks on its page",
    ]
    for number, said in ((5, "1 more block:"), (6, "2 more blocks:")):
        grid_state = GridState.of(load("demo"), Home(Path("nowhere")))
        assert said in render(grid_state, measured=Measured(("found",) * number))


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("nope",), "unknown grid 'nope'"),
        (("demo", "--compare", "demo"), "--compare 'demo': give two grids, e.g. --compare demo,demo"),
        (("demo", "--compare", "demo,nope"), "unknown grid 'nope'"),
    ],
)
def test_what_no_site_can_hold_is_named(words: tuple[str, ...], message: str, trained_pair: Home, verb: Verb) -> None:
    with pytest.raises(UserError) as caught:
        verb("site", str(trained_pair.path / "web"), *words, runs=trained_pair)
    assert message in str(caught.value)
    assert not (trained_pair.path / "web").exists()


def test_nothing_of_others_is_overwritten(trained_pair: Home, verb: Verb, tmp_path: Path) -> None:
    index = tmp_path / "index.html"
    index.write_text("<h1>My home page</h1>")
    with pytest.raises(UserError, match=r"index\.html exists and was not written by goalgrid"):
        verb("site", str(tmp_path), runs=trained_pair)
    assert index.read_text() == "<h1>My home page</h1>"
    with pytest.raises(UserError, match=r"no grid has run under .*Start one: goalgrid run demo"):
        verb("site", str(tmp_path / "web"), runs=Home(tmp_path / "empty"))
    index.rename(file := tmp_path / "file")
    with pytest.raises(UserError, match="a file is in the place of its folder"):
        verb("site", str(file), runs=trained_pair)
