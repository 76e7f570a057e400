"""What reaches a terminal: nothing that it would obey, and no letter that it cannot show."""

import io
import json
import os
import subprocess
import sys

import pytest
from rich.table import Table as RichTable

from goalgrid.cli.console import PlainConsole
from goalgrid.grid.messages import plain
from goalgrid.grid.store.attempts import Failure
from goalgrid.grid.store.home import Home
from goalgrid.results.renderers import csv
from goalgrid.state import status_lines

from ...conftest import ROOT
from ...states import fail
from ..conftest import Verb, grid_state

EVIL = "\x1b]0;owned\x07\x1b[2J\r\u202egnp.exe"


def test_texts_lose_what_a_terminal_obeys_and_keep_the_rest() -> None:
    assert plain(EVIL) == r"\x1b]0;owned\x07\x1b[2J\r\u202egnp.exe"
    kept = "38.1 ± 0.2 → −1 × ∞ naïve \u00a0 猫\n\tx"
    assert plain(kept) == kept
    assert plain("\udcff") == r"\udcff"


def test_a_console_keeps_its_own_codes_alone() -> None:
    file = io.StringIO()
    console = PlainConsole(file=file, force_terminal=True, width=80)
    table = RichTable("name")
    table.add_row(f"[bold]{EVIL}")
    console.print(EVIL, markup=False)
    console.print(table)
    said = file.getvalue()
    assert "\x1b[1m" in said
    assert not any(code in said for code in ("\x1b]", "\x1b[2J", "\x07", "\r", "\u202e"))


def test_what_a_trial_said_is_escaped_and_stays_a_line(pair: Home, verb: Verb) -> None:
    fail(pair.trials()[0], Failure.BUG, f"cannot read {EVIL}\nok: all is well")
    told = verb("status", "demo", runs=pair).stdout
    assert r"cannot read \x1b]0;owned" in told
    assert "\nok: all is well" not in told
    assert not any(code in told for code in ("\x1b", "\x07", "\r", "\u202e"))
    assert json.loads(verb("status", "demo", "--json", runs=pair).stdout)["failed"][0]["message"].startswith("cannot")
    assert any(EVIL in str(note) for note in status_lines.failure_lines(grid_state(pair)))


@pytest.mark.parametrize("encoding", ["latin-1", "ascii", "cp1252"])
def test_letters_that_an_encoding_lacks_are_spelt_out(encoding: str) -> None:
    stream = io.TextIOWrapper(io.BytesIO(), encoding=encoding, errors="goalgrid")
    stream.write("Image → Text, −0.5, 猫 \udcff")
    stream.flush()
    said = stream.buffer.getvalue().decode(encoding)  # type: ignore[attr-defined]
    assert said == r"Image -> Text, -0.5, \u732b \udcff"


def test_a_table_is_printed_on_a_terminal_without_these_letters(trained_pair: Home) -> None:
    environment = {**os.environ, "PYTHONIOENCODING": "ascii", "GOALGRID_RUNS": str(trained_pair.path)}
    command = [sys.executable, "-m", "goalgrid", "table", "demo"]
    finished = subprocess.run(command, capture_output=True, env=environment, cwd=ROOT)
    assert finished.returncode == 0, finished.stderr
    printed = finished.stdout.decode("ascii")
    assert "Image -> Text" in printed
    assert len({len(line) for line in printed.splitlines() if line[:1] in ("|", "+")}) == 1, printed


def test_a_spreadsheet_runs_no_cell() -> None:
    rows = [["=HYPERLINK(1)", "+cmd|'/C calc'!A0", "-2+3+cmd|x", "@SUM(1)", "-0.5 ± 0.1", -0.5, "con_con"]]
    told = csv.written(list("abcdefg"), rows).splitlines()[1]
    assert told == "'=HYPERLINK(1),'+cmd|'/C calc'!A0,'-2+3+cmd|x,'@SUM(1),-0.5 ± 0.1,-0.5,con_con"
