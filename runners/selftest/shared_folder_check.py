"""Checks of a runs folder by several processes (onlookers) at once.

Started as `python -m runners.selftest.shared_folder_check FOLDER COUNT`.

A renamed file appears whole, only one contender makes a link, and other processes see a written file.
"""

import json
import sys
import time
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import TypedDict

from goalgrid.grid.errors import UserError
from goalgrid.grid.store.attempts import HEARTBEAT_SECONDS
from goalgrid.grid.store.files import create_text, write_text
from goalgrid.runners.selftest.faults import Unmet, wait_for

MEETING_SECONDS = 60.0
"""How long an onlooker waits for the others."""

ROUNDS = 100
SIZE = 1 << 16
"""Number of links contended for and of renames watched; bytes of the renamed file."""

PAUSE_SECONDS = 0.005
"""Pause of a winner after it made a link."""


class Sighting(TypedDict):
    """The report of an onlooker."""

    won: list[int]
    """Rounds in which it made the link."""
    faults: list[str]
    """Faults of the folder, in words."""
    seconds: float
    """Seconds until it saw the files of all others."""


def look(folder: str, count: int) -> Sighting:
    """Check the folder as one of `count` onlookers. An error is a fault too, so that every node reports it."""
    seen, place, name = Sighting(won=[], faults=[], seconds=0.0), Path(folder), uuid.uuid4().hex
    try:
        _meet(place, "came", name, count, MEETING_SECONDS)
        seen["won"] = [number for number in range(ROUNDS) if _contend(place / f"link-{number}", name)]
        seen["seconds"] = _meet(place, "linked", name, count, MEETING_SECONDS)
        writes = create_text(place / "writer", name)
        seen["faults"] += _write(place / "whole") if writes else _read(place / "whole")
    except OSError as error:
        seen["faults"].append(f"{error.strerror}: {error.filename}")
    except (UserError, Unmet) as error:
        seen["faults"].append(str(error))
    return seen


def faults(seen: Sequence[Sighting]) -> dict[str, str]:
    """The claims about the folder, each with its counter-evidence; empty if the claim holds."""
    errors = "; ".join(dict.fromkeys(fault for onlooker in seen for fault in onlooker["faults"]))
    wrong = sum(sum(number in onlooker["won"] for onlooker in seen) != 1 for number in range(ROUNDS))
    slowest = max(onlooker["seconds"] for onlooker in seen)
    late = f"a file was seen after {slowest:.0f} s" if slowest > HEARTBEAT_SECONDS else ""
    return {
        "files are written, flushed and renamed as a whole": errors,
        "of several processes one alone makes a link": f"{wrong} of {ROUNDS} times not" if wrong and not errors else "",
        "a file is seen by the others at once": late,
    }


def _meet(place: Path, what: str, name: str, count: int, patience: float) -> float:
    """Write a file and wait for those of all others; returns the seconds from this write on."""
    write_text(place / f"{what}-{name}", name)
    began = time.monotonic()
    wait_for(lambda: len(list(place.glob(f"{what}-*"))) >= count, f"all {count} files {what}-*", patience)
    return time.monotonic() - began


def _contend(path: Path, name: str) -> bool:
    """Try to make a link at the same time as the others; the winner lets them catch up."""
    try:
        won = create_text(path, name)
    except OSError as error:
        raise UserError(f"no hard link can be made: {error.strerror}") from error
    if won:
        time.sleep(PAUSE_SECONDS)
    return won


def _write(path: Path) -> list[str]:
    """Replace a file again and again; the last content says that it is over."""
    for letter in "ab" * (ROUNDS // 2) + "z":
        write_text(path, letter * SIZE)
    return []


def _read(path: Path) -> list[str]:
    """Read the file meanwhile; returns a fault if it is ever missing or not whole."""
    wait_for(path.exists, str(path), MEETING_SECONDS)
    until = time.monotonic() + MEETING_SECONDS
    while time.monotonic() < until:
        try:
            text = path.read_text(encoding="ascii")
        except FileNotFoundError:
            return ["a file was missing while another process replaced it"]
        if len(text) != SIZE or len(set(text)) != 1:
            return [f"a file was read half: {len(text):,} of {SIZE:,} bytes"]
        if text[0] == "z":
            return []
    return [f"the last content of a file was not seen within {MEETING_SECONDS:g} s"]


def main() -> None:
    """Check the folder that the command line names, together with as many other processes as it says."""
    sys.stdout.write(json.dumps(look(sys.argv[1], int(sys.argv[2]))))
