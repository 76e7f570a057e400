"""The report, in a real browser and as text; where no browser is, what needs one is skipped."""

import json
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import psutil
import pytest
from axe_core_python.base import AXE_SCRIPT
from PIL import Image
from selenium import webdriver
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.remote.webelement import WebElement
from selenium.webdriver.support.ui import Select

from goalgrid.cli.next_steps import shell
from goalgrid.grid.errors import UserError
from goalgrid.grid.expansion import expand, trials_of
from goalgrid.grid.gridfile import load
from goalgrid.grid.store.attempts import Failure
from goalgrid.grid.store.home import Home
from goalgrid.reports import report
from goalgrid.results import renderers
from goalgrid.results.export.report_page import Measured, _tables
from goalgrid.results.layouts import arrange
from goalgrid.results.records import record
from goalgrid.results.records.scores import Scores
from goalgrid.state.grid_state import GridState
from tests.fork_server import client

from ...browser import DESK, PHONE, TABLET, browser, load_page, reach, visit
from ...conftest import ROOT
from ...paper_records import write_trial
from ...states import fail, interrupt
from ..conftest import Verb, grid_state

HOSTILE = '<img src=x onerror="document.title=1"> & <script>alert(1)</script>'


@pytest.fixture(scope="module")
def chromium() -> Iterator[webdriver.Chrome]:
    started = browser()
    yield started
    started.quit()


@pytest.fixture(scope="module")
def matrix(verb: Verb, trained: Home, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The report of GOAL's matrix, of which two cells are done."""
    home = Home(Path(shutil.copytree(trained.path, tmp_path_factory.mktemp("matrix") / "runs")))
    grid = home.grid("demo").grid
    grid.write_text(re.sub(r"objectives = \[[^]]*\]", 'objectives = "goal"', grid.read_text()))
    page = home.path / "report.html"
    beside = ("--compare", "demo", "--other-runs", str(trained.path))
    assert "written" in verb("report", "demo", "--output", str(page), *beside, runs=home).stderr
    return page


@pytest.fixture(scope="module")
def sweep(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The report of 222 blocks, one for each learning rate, from records that no training wrote."""
    home = Home(tmp_path_factory.mktemp("sweep"))
    rates = [round(1e-5 * number, 6) for number in range(1, 223)]
    grid = load("demo", ['objectives=["con_con","lin_con"]', 'recipes=["cnn-bow"]', f"sweep.train.lr={rates}"])
    for place, trial in enumerate(trials_of(expand(grid))):
        values = {"i2t_r1": place % 89 + 0.5, "t2i_r1": place % 83, "rsum": place % 97 + 100}
        history = [{"epoch": epoch, "name": "loss", "value": 1 / epoch + trial.seed} for epoch in (1, 2, 3)]
        by_protocol = {(trial.shared.dataset.protocol, name): value for name, value in values.items()}
        write_trial(home, trial, by_protocol, history=history, data_fingerprint="of no data")
    page = home.path / "report.html"
    page.write_text(report.render(GridState.of(grid, home)))
    return page


def test_a_comparison_has_a_section(matrix: Path) -> None:
    text = matrix.read_text()
    assert 'href="#comparison"' in text
    assert f"demo in {matrix.parent} (B): 2 cells compared" in text
    assert "the same trials" in text


def test_the_json_of_the_page_has_each_trials_state_and_its_own_numbers(tmp_path: Path) -> None:
    home, grid = Home(tmp_path), load("demo", ['objectives=["con_con","lin_con"]', "seeds=[0,1]"])
    done, lost, *planned = trials_of(expand(grid))
    values = {"i2t_r1": 1.5, "t2i_r1": 2.5, "rsum": 100.25}
    by_protocol = {(done.shared.dataset.protocol, name): value for name, value in values.items()}
    write_trial(home, done, by_protocol, data_fingerprint="of no data")
    fail(home.trial(lost.id), Failure.OUT_OF_MEMORY, "full")
    (text,) = re.findall(
        r'<script type="application/json" id="cells">(.*?)</script>', report.render(GridState.of(grid, home))
    )
    trials = {trial["id"]: trial for cell in json.loads(text)["cells"] for trial in cell["trials"]}
    states = {done.id: "done", lost.id: "failed", **{trial.id: "planned" for trial in planned}}
    assert {name: trial["state"] for name, trial in trials.items()} == states
    assert trials[done.id]["numbers"][:3] == ["1.5", "2.5", "100.2"]
    assert [name for name, trial in trials.items() if "numbers" in trial] == [done.id]


@pytest.fixture
def opened(chromium: webdriver.Chrome, matrix: Path) -> webdriver.Chrome:
    """The report as it is opened from disk, on a desk."""
    return visit(chromium, matrix)


def shown(driver: webdriver.Chrome) -> list[str]:
    """Names of the tables that a reader sees in the first section."""
    tables = driver.find_elements(By.CSS_SELECTOR, "#tables .wide")
    return [str(table.get_attribute("aria-label")) for table in tables if table.is_displayed()]


def column(driver: webdriver.Chrome, place: int) -> list[str]:
    rows = driver.find_elements(By.CSS_SELECTOR, "#tables .panel:first-of-type tbody tr:not(.title)")
    return [row.find_elements(By.CSS_SELECTOR, "th, td")[place].text for row in rows]


def head(driver: webdriver.Chrome, place: int) -> Any:
    return driver.find_elements(By.CSS_SELECTOR, "#tables .panel:first-of-type .columns th")[place]


def test_it_opens_from_disk_and_asks_the_network_for_nothing(opened: webdriver.Chrome) -> None:
    assert opened.find_element(By.TAG_NAME, "h1").text == "demo"
    found = opened.find_element(By.CSS_SELECTOR, ".found").text
    assert re.fullmatch(r"cnn-bow on shapes, 2 cells x 2 seeds: \S+ has the best rsum, [\d.]+.*", found)
    assert "45 trials" not in opened.find_element(By.CSS_SELECTOR, ".lead").text
    assert "30 trials: 4 done, 26 planned" in opened.find_element(By.CSS_SELECTOR, ".lead").text
    loaded = opened.execute_script("return performance.getEntriesByType('resource').map(entry => entry.name)")
    assert [name for name in loaded if not name.startswith("data:")] == []
    drawn = opened.execute_script("return [...document.images].every(image => image.complete && image.naturalWidth)")
    assert drawn
    assert opened.get_log("browser") == []  # type: ignore[no-untyped-call]


def test_metrics_are_chosen_by_keyboard(opened: webdriver.Chrome) -> None:
    assert shown(opened) == ["Recall@1, shapes-500"]
    opened.find_element(By.ID, "metric-1-1").send_keys(Keys.ARROW_RIGHT)
    assert shown(opened) == ["Recall@5, shapes-500"]
    opened.find_element(By.CSS_SELECTOR, "#table-1-2 button.opens").send_keys(Keys.ENTER)
    opened.find_element(By.CSS_SELECTOR, "dialog[open]").send_keys(Keys.ESCAPE)
    opened.find_element(By.ID, "metric-1-2").send_keys(Keys.ARROW_LEFT, Keys.ARROW_LEFT)
    assert shown(opened) == ["all metrics, shapes-500"]


def test_columns_sort_by_mouse_and_keyboard_and_the_missing_come_last(opened: webdriver.Chrome) -> None:
    head(opened, 1).find_element(By.TAG_NAME, "button").click()
    assert head(opened, 1).get_attribute("aria-sort") == "descending"
    first, *others = column(opened, 1)
    assert first != "--"
    assert others == ["--"] * 4
    head(opened, 0).find_element(By.TAG_NAME, "button").send_keys(Keys.ENTER)
    assert column(opened, 0) == sorted(column(opened, 0))
    assert head(opened, 1).get_attribute("aria-sort") is None
    head(opened, 0).find_element(By.TAG_NAME, "button").send_keys(Keys.SPACE)
    assert head(opened, 0).get_attribute("aria-sort") == "descending"
    assert column(opened, 0) == sorted(column(opened, 0), reverse=True)


def test_a_cell_opens_with_its_trials_its_tests_and_their_curves(opened: webdriver.Chrome) -> None:
    (cell,) = [button for button in cells_of(opened) if button.is_displayed()][:1]
    cell.send_keys(Keys.ENTER)
    dialog = opened.find_element(By.ID, "cell")
    assert dialog.find_element(By.TAG_NAME, "h2").text == "con_con, cnn-bow on shapes"
    assert re.match(r"rsum [\d.]+[;,] the best", dialog.find_element(By.CLASS_NAME, "verdict").text)
    rows = [row.text.split() for row in dialog.find_elements(By.CSS_SELECTOR, "tbody tr")]
    assert [row[:2] for row in rows] == [["0", "done"], ["1", "done"]]
    assert all("trials/shapes_cnn-bow_con_con" in row[-1] for row in rows)
    assert lines_of(opened) == [True, True]
    dialog.find_element(By.CSS_SELECTOR, ".lines input").send_keys(Keys.SPACE)
    assert lines_of(opened) == [False, True]
    Select(dialog.find_element(By.CLASS_NAME, "quantity")).select_by_value("loss")
    Select(dialog.find_element(By.CLASS_NAME, "rival")).select_by_index(0)
    assert lines_of(opened) == [True] * 4
    dialog.find_element(By.CLASS_NAME, "log").click()
    assert opened.execute_script("return chart.scales.y.distr") == 3
    assert "loss over epochs" in str(dialog.find_element(By.CLASS_NAME, "chart").get_attribute("aria-label"))
    dialog.send_keys(Keys.ESCAPE)
    assert not dialog.is_displayed()


def cells_of(driver: webdriver.Chrome) -> list[WebElement]:
    return driver.find_elements(By.CSS_SELECTOR, "#tables button.opens")


def lines_of(driver: webdriver.Chrome) -> list[bool]:
    """Which lines of the chart are drawn."""
    return list(driver.execute_script("return chart.series.slice(1).map(line => line.show)"))


def test_the_curves_are_those_of_the_record(opened: webdriver.Chrome, trained: Home) -> None:
    drawn = opened.execute_script(
        "return Object.fromEntries(opened.flatMap(cell => cell.trials).map(t => [t.id, t.curves]))"
    )
    done = {trial: curves for trial, curves in drawn.items() if curves}
    assert len(done) == 4
    for trial, curves in done.items():
        (row,) = record.collect([trained.trial(trial).record], ["history"]).to_pylist()
        for logged in row["history"]:
            epochs, values = curves[logged["name"]]
            assert values[epochs.index(logged["epoch"])] == pytest.approx(logged["value"], rel=1e-4)


def copied(driver: webdriver.Chrome, form: str) -> str:
    """The first table, as the clipboard has it after a button was pressed."""
    permissions = {"permissions": ["clipboardReadWrite", "clipboardSanitizedWrite"]}
    driver.execute_cdp_cmd("Browser.grantPermissions", permissions)
    button = driver.find_element(By.CSS_SELECTOR, f"#table-1-1 .actions button[aria-label*={form}]")
    button.send_keys(Keys.ENTER)
    wait_for(lambda: button.text == f"{form} ✓")
    return str(driver.execute_async_script("navigator.clipboard.readText().then(arguments[0])"))


def test_a_table_is_copied(opened: webdriver.Chrome, verb: Verb, matrix: Path) -> None:
    texts = {form: copied(opened, form) for form in ("CSV", "Markdown", "LaTeX")}
    value = cells_of(opened)[0].text.replace("†", "").strip()
    assert texts["CSV"].splitlines()[0].startswith(",Image → Text T^con,")
    assert value in texts["CSV"]
    assert texts["Markdown"].splitlines()[1].startswith("| --- | --- |")
    printed = verb("table", "demo", "--format", "latex", runs=Home(matrix.parent)).stdout
    assert r"\multicolumn{3}{c}{Image $\rightarrow$ Text}" in printed
    lines = texts["LaTeX"].replace("$^{\\dagger}$", "").splitlines()[1:-1]  # the command tests no differences
    assert lines == printed[printed.index("\\toprule") :].splitlines()[: len(lines)]


@pytest.mark.slow
def test_a_sweep_of_222_blocks_is_read(chromium: webdriver.Chrome, sweep: Path) -> None:
    visit(chromium, sweep)
    assert len(chromium.find_elements(By.CSS_SELECTOR, "#table-1-1 .title")) == 222
    foremost = chromium.execute_script("return opened.findIndex(cell => cell.trials[0].curves.loss)")
    chromium.find_element(By.CSS_SELECTOR, f"#table-1-1 [data-cell='{foremost}'] button").send_keys(Keys.ENTER)
    dialog = chromium.find_element(By.ID, "cell")
    rows = [row.text.split() for row in dialog.find_elements(By.CSS_SELECTOR, "tbody tr")]
    assert [row[:2] for row in rows] == [["0", "done"], ["1", "done"], ["2", "done"]]
    dialog.find_element(By.CSS_SELECTOR, ".lines label:nth-of-type(2) input").click()
    assert lines_of(chromium) == [True, False, True]
    dialog.send_keys(Keys.ESCAPE)
    head(chromium, 1).find_element(By.TAG_NAME, "button").send_keys(Keys.ENTER)
    blocks = chromium.execute_script(
        "return [...document.querySelectorAll('#table-1-1 tbody')]"
        ".map(body => [...body.querySelectorAll('td:nth-of-type(1)')].map(cell => Number(cell.dataset.value)))"
    )
    assert [len(values) for values in blocks] == [5] * 222
    assert blocks == [sorted(values, reverse=True) for values in blocks]
    lines = copied(chromium, "LaTeX").splitlines()
    assert len(lines) == 7 + 8 * 222
    assert f"{blocks[-1][0]:.1f}" in lines[-7]


def test_a_figure_is_saved(opened: webdriver.Chrome, tmp_path: Path) -> None:
    opened.execute_cdp_cmd("Browser.setDownloadBehavior", {"behavior": "allow", "downloadPath": str(tmp_path)})
    figure = opened.find_element(By.ID, "figure-1")
    for name in ("SVG", "PNG"):
        figure.find_element(By.CSS_SELECTOR, f".actions button[aria-label*={name}]").send_keys(Keys.ENTER)
        wait_for(lambda name=name: len(list(tmp_path.glob(f"*.{name.lower()}"))) == 1)
    (vector,), (raster,) = tmp_path.glob("*.svg"), tmp_path.glob("*.png")
    assert "<svg" in vector.read_text()[:1000]
    with Image.open(raster) as picture:
        assert picture.width > 1000


CUT = """return [...document.querySelectorAll('body *')].filter(element => {
  const box = element.getBoundingClientRect();
  return box.width && (box.right > innerWidth + 1 || box.left < 0) && !element.closest('.wide, .skip, .unseen');
}).map(element => element.outerHTML.slice(0, 200))"""
"""What stands outside the window: only within `.wide`, which scrolls, it may."""

A4 = (718, 1000)
"""What a printed page has room for within Chromium's margins."""

SCROLLS = "return [...document.querySelectorAll('.wide')].filter(e => e.scrollWidth > e.clientWidth + 1).length"

UNREACHABLE = """return [...document.querySelectorAll('*')].filter(element => element.tabIndex < 0
  && element.scrollWidth > element.clientWidth + 1
  && ['auto', 'scroll'].includes(getComputedStyle(element).overflowX)).map(element => element.outerHTML)"""


CONTRAST = {"runOnly": ["color-contrast"]}
"""What light and dark differ in."""
SHAPE = {"rules": {"color-contrast": {"enabled": False}}}
"""What widths differ in."""


def violations(driver: webdriver.Chrome, rules: Mapping[str, Any]) -> list[tuple[str, str]]:
    """What axe finds against the accessibility of what is seen: the rule, and a place.

    It would take a minute for 222 blocks that are alike, so three of them stay on the page.
    """
    driver.execute_script(AXE_SCRIPT)
    asked = {"resultTypes": ["violations"], "preload": False, **rules}
    alike = "document.querySelectorAll('tbody:nth-of-type(n + 4), #trials tbody tr:nth-of-type(n + 9)')"
    driver.execute_script(f"for (const part of {alike}) part.remove()")
    result = driver.execute_async_script("axe.run(document, arguments[0]).then(arguments[1])", asked)
    return [(rule["id"], rule["nodes"][0]["html"]) for rule in result["violations"]]


@pytest.mark.parametrize("page", ["matrix", pytest.param("sweep", marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    ("size", "colours", "rules"),
    [(DESK, "light", {}), (DESK, "dark", CONTRAST), (TABLET, "light", SHAPE), (PHONE, "dark", SHAPE)],
)
def test_nothing_is_cut_and_axe_finds_nothing(
    chromium: webdriver.Chrome,
    request: pytest.FixtureRequest,
    page: str,
    size: tuple[int, int],
    colours: str,
    rules: Mapping[str, Any],
) -> None:
    """On a desk no table scrolls; elsewhere tables do, with a shadow that says so and by keyboard."""
    preferred = {"features": [{"name": "prefers-color-scheme", "value": colours}]}
    chromium.execute_cdp_cmd("Emulation.setEmulatedMedia", preferred)
    try:
        visit(chromium, request.getfixturevalue(page), size)
        assert chromium.execute_script("return matchMedia('(prefers-color-scheme: dark)').matches") == (
            colours == "dark"
        )
        chromium.execute_script("for (const folded of document.querySelectorAll('details')) folded.open = true")
        assert chromium.execute_script(CUT) == []
        assert chromium.execute_script(UNREACHABLE) == []
        if size == DESK:
            assert chromium.execute_script(SCROLLS) == 0
        assert violations(chromium, rules) == []
        cells_of(chromium)[0].send_keys(Keys.ENTER)
        assert chromium.execute_script(CUT) == []
        dialog = chromium.find_element(By.ID, "cell")
        assert chromium.execute_script("return arguments[0].scrollWidth <= arguments[0].clientWidth", dialog)
        assert violations(chromium, rules) == []
    finally:
        chromium.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})


def test_all_of_it_is_printed(chromium: webdriver.Chrome, matrix: Path) -> None:
    opened = visit(chromium, matrix, A4)
    opened.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print"})
    try:
        assert opened.execute_script(SCROLLS) == 0
        assert len(shown(opened)) == 6
        opened.execute_script("window.dispatchEvent(new Event('beforeprint'))")
        assert opened.find_element(By.CSS_SELECTOR, "#trials table").is_displayed()
        assert not opened.find_element(By.TAG_NAME, "nav").is_displayed()
    finally:
        opened.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": ""})


def test_it_reads_without_scripts(matrix: Path) -> None:
    driver = browser(scripts=False)
    try:
        visit(driver, matrix)
        assert not [button for button in driver.find_elements(By.TAG_NAME, "button") if button.is_displayed()]
        assert shown(driver) == ["Recall@1, shapes-500"]
        driver.find_element(By.CSS_SELECTOR, "label[for=metric-1-5]").click()
        assert shown(driver) == ["rsum, shapes-500"]
    finally:
        driver.quit()


def test_a_page_that_loads_itself_again_keeps_what_was_chosen(
    chromium: webdriver.Chrome, pair: Home, tmp_path: Path
) -> None:
    seen = grid_state(pair)
    interrupt(pair.trial(seen.trials[1].id), epoch=1, step=3)
    page = tmp_path / "live.html"
    page.write_text(report.render(grid_state(pair), refresh=1))
    visit(chromium, page)
    chromium.execute_script(
        "document.querySelector('#tables th button').click(); document.querySelector('#trials summary').click();"
        "window.before = true"
    )
    look = (
        "return !window.before && document.readyState == 'complete' &&"
        " [document.querySelector('#tables .columns th').ariaSort, document.querySelector('#trials details').open]"
    )
    seen_again: list[Any] = []
    wait_for(lambda: bool(seen_again.append(chromium.execute_script(look)) or seen_again[-1]))
    assert seen_again[-1] == ["ascending", True]


def test_what_came_from_outside_stays_text(chromium: webdriver.Chrome, pair: Home, tmp_path: Path) -> None:
    fail(pair.trial(grid_state(pair).trials[1].id), Failure.BUG, HOSTILE)
    page = tmp_path / "report.html"
    page.write_text(report.render(grid_state(pair), wording=shell))
    visit(chromium, page)
    assert HOSTILE in chromium.find_element(By.CSS_SELECTOR, ".failure").text
    assert chromium.title == "demo - goalgrid"
    assert "goalgrid resume demo --only" in chromium.find_element(By.CSS_SELECTOR, ".failure").text


class Cells(HTMLParser):
    """The text of every cell with a value."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.cells: list[str] = []
        self._inside = False
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "td":
            self._inside = "data-value" in dict(attrs)
            self.cells += [""] * self._inside

    def handle_endtag(self, tag: str) -> None:
        self._inside = self._inside and tag != "td"

    def handle_data(self, data: str) -> None:
        if self._inside:
            self.cells[-1] += data


@pytest.mark.gate
def test_notes_stand_at_the_top_and_run_nothing(
    chromium: webdriver.Chrome, verb: Verb, pair: Home, tmp_path: Path
) -> None:
    hostile = f"{HOSTILE} [click](javascript:alert(1)) ![p](http://example.org/p.png)"
    notes = {"title": HOSTILE, "hypothesis": HOSTILE, "author": HOSTILE, "text": f"So *it* is: {hostile}"}
    words = [word for name, text in notes.items() for word in ("--set", f"notes.{name}={json.dumps(text)}")]
    before = [trial.id for trial in grid_state(pair).trials]
    pair.grid("demo").notes.write_text(f"## Later\n\n{hostile}\n\n| a | b |\n|---|---|\n| 1 | 2 |\n")
    page = tmp_path / "noted.html"
    verb("report", "demo", *words, "--output", str(page), runs=pair)
    visit(chromium, page)
    assert chromium.find_element(By.TAG_NAME, "h1").text == HOSTILE
    assert chromium.title == f"{HOSTILE} - goalgrid"
    section = chromium.find_element(By.ID, "notes")
    assert "So it is: <img" in section.text
    assert [cell.text for cell in section.find_elements(By.CSS_SELECTOR, "td")] == ["1", "2"]
    assert not section.find_elements(By.CSS_SELECTOR, "img, script")
    links = {link.get_attribute("href") for link in section.find_elements(By.TAG_NAME, "a")}
    assert links == {"http://example.org/p.png"}, "a picture needs a network, so it is a link"
    assert [trial.id for trial in grid_state(pair).trials] == before
    pair.grid("demo").notes.write_bytes(b"\xff")
    with pytest.raises(UserError, match="notes"):
        verb("report", "demo", runs=pair)
    with pytest.raises(UserError, match="notes"):
        verb("plan", "demo", "--set", "notes.titel=x", runs=pair)


def test_its_numbers_are_those_of_the_tables(verb: Verb, trained: Home, tmp_path: Path) -> None:
    page = tmp_path / "table.html"
    verb("table", "demo", "--layout", "listing", "--output", str(page), runs=trained)
    seen = grid_state(trained)
    table = arrange(seen.cells, Scores.read(seen.cells, trained), layout="listing")
    assert Cells(page.read_text()).cells == [entry.text for entry in table.entries()]


def test_the_command_under_a_table_makes_it(verb: Verb, trained: Home) -> None:
    seen = grid_state(trained)
    _, tables = _tables("demo", seen.cells, Scores.read(seen.cells, trained))
    for table in tables.values():
        assert table.command.endswith(" --marks")
        printed = verb(*table.command.split(), "--format", "markdown", runs=trained).stdout
        assert printed.splitlines()[1:] == renderers.encoded(table, "markdown").decode().splitlines()[1:]


def test_every_failure_trial_and_file_is_in_it(pair: Home) -> None:
    seen = grid_state(pair)
    fail(pair.trial(seen.trials[0].id), Failure.NON_FINITE, "the loss became nan at step 3")
    damaged = pair.trial(seen.trials[1].id)
    for path in (damaged.speed, damaged.trace):
        path.write_bytes(b"PAR1 cut off")
    page = report.render(grid_state(pair))
    told = (f"Left out: the speed {damaged.speed} cannot", f"Left out: the trace {damaged.trace} cannot")
    for what in (*told, "non-finite", "nan at step 3", *(trial.id for trial in seen.trials), "torch 2.", "[set]"):
        assert what in page
    assert "data-refresh" not in page


def test_a_grid_of_which_nothing_is_done_has_a_report(verb: Verb, tmp_path: Path) -> None:
    home = Home(tmp_path)
    assert "report.html" in verb("report", "demo", runs=home).stderr
    page = home.grid("demo").report.read_text()
    assert "No trial is done yet." in page
    assert "data-refresh" not in page


def test_a_page_without_results_says_why(pair: Home) -> None:
    seen = grid_state(pair)
    assert "Results are being read." in report.render(seen, measured=Measured(), live=1)
    assert "No finished trial has results on the current data." in report.render(seen, measured=Measured())


@pytest.mark.gate
def test_watching_ends_when_no_trial_is_left(pair: Home) -> None:
    ids = [trial.id for trial in grid_state(pair).trials]
    done = pair.trial(ids[1]).done
    done.rename(aside := done.with_name("aside"))
    command = [sys.executable, "-m", "goalgrid", "report", "demo", "--watch", "--every", "1", "--runs", str(pair.path)]
    watching = client.Popen(command, stderr=subprocess.PIPE, cwd=ROOT)
    page = pair.grid("demo").report
    wait_for(page.exists)
    assert 'data-refresh="1"' in page.read_text()
    assert watching.poll() is None
    aside.rename(done)
    _, told = watching.communicate(timeout=60)
    assert watching.returncode == 0
    assert "(2 trials: 2 done)" in told.splitlines()[-1]
    assert "data-refresh" not in page.read_text()


@contextmanager
def served(home: Home, *words: str, end: int = signal.SIGINT) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """A page that is served, by its address, until a signal."""
    command = [sys.executable, "-m", "goalgrid", "report", "demo", "--serve", "--port", "0", *words]
    process = client.Popen([*command, "--runs", str(home.path)], stderr=subprocess.PIPE, cwd=ROOT)
    assert process.stderr is not None
    try:
        yield process.stderr.readline().split()[0], process
    finally:
        process.send_signal(end)
        process.communicate(timeout=60)


@pytest.mark.gate
def test_a_served_page_follows_the_grid_and_stays_when_its_program_ends(opened: webdriver.Chrome, pair: Home) -> None:
    ids = [trial.id for trial in grid_state(pair).trials]
    done = pair.trial(ids[1]).done
    done.rename(aside := done.with_name("aside"))
    driver = opened
    reach(driver, network=True)
    driver.get_log("browser")
    try:
        with served(pair) as (address, process):
            load_page(driver, address)
            page = "return document.querySelector('#standing').innerText + document.querySelector('main').innerText"
            assert "1 done" in driver.execute_script(page)
            rows = "return document.querySelectorAll('#tables button.opens').length"
            wait_for(lambda: driver.execute_script(rows) > 0)
            driver.find_element(By.CSS_SELECTOR, "#trials summary").send_keys(Keys.ENTER)
            aside.rename(done)
            wait_for(lambda: "2 done" in driver.execute_script(page))
            opened = "return document.querySelector('#trials details').open"
            wait_for(lambda: driver.execute_script("return document.body.dataset.live") == "3")
            wait_for(lambda: driver.execute_script(opened))
            wait_for(lambda: len(driver.find_elements(By.CSS_SELECTOR, "#trials tbody td:nth-child(6)")) == 2)
        assert process.returncode == 0
        wait_for(lambda: "has ended" in driver.execute_script(page))
        assert "2 done" in driver.execute_script(page)
        assert [entry for entry in driver.get_log("browser") if "ERR_CONNECTION_REFUSED" not in entry["message"]] == []
    finally:
        reach(driver, network=False)


def answer(address: str, **headers: str) -> int:
    try:
        with urllib.request.urlopen(urllib.request.Request(address, headers=headers)) as got:
            return int(got.status)
    except urllib.error.HTTPError as error:
        return error.code


@pytest.mark.gate
def test_a_foreign_page_reads_nothing_of_a_served_one_and_its_port_is_taken(verb: Verb, pair: Home) -> None:
    with served(pair) as (address, _):
        assert answer(address) == 200
        assert answer(address, Host="localhost:9999") == 200, "forwarded by ssh"
        assert answer(address, Host="evil.example:80") == 404
        assert answer(f"{address}etc/passwd") == 404
        port = address.rstrip("/").rpartition(":")[2]
        with pytest.raises(UserError, match=f"port {port} of 127.0.0.1 cannot be used: .* --port 0 picks a free one"):
            verb("report", "demo", "--serve", "--port", port, runs=pair)
    with served(pair, "--host", "0.0.0.0", end=signal.SIGTERM) as (address, process):
        _, _, host, secret, _ = address.split("/")
        port = host.rpartition(":")[2]
        assert answer(f"http://127.0.0.1:{port}/{secret}/") == 200
        assert answer(f"http://127.0.0.1:{port}/") == 404
    assert process.returncode == 0


@pytest.mark.gate
def test_silent_connections_keep_nobody_out(pair: Home) -> None:
    """400 of them have 64 threads at most; the page is answered meanwhile."""
    with served(pair) as (address, process), ExitStack() as stack:
        port = int(address.rstrip("/").rpartition(":")[2])
        silent = [stack.enter_context(socket.create_connection(("127.0.0.1", port))) for _ in range(400)]
        assert answer(address) == 200
        assert psutil.Process(process.pid).num_threads() < 64 + 30
        silent[0].settimeout(60)
        assert silent[0].recv(1) == b"", "closed by the program"
        assert answer(address) == 200
    assert process.returncode == 0


def test_what_cannot_be_served_is_named(verb: Verb, pair: Home) -> None:
    with pytest.raises(UserError, match="must be an IP address"):
        verb("report", "demo", "--serve", "--host", "x", runs=pair)
    with pytest.raises(UserError, match="--serve writes no file"):
        verb("report", "demo", "--serve", "--watch", runs=pair)


def wait_for(reached: Callable[[], bool], seconds: float = 60) -> None:
    until = time.monotonic() + seconds
    while not reached():
        assert time.monotonic() < until
        time.sleep(0.1)
