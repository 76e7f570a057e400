"""What goalgrid needs of a runs folder, tried by several processes at once.

Started as `python -m runners.selftest.shared_folder_check FOLDER COUNT`.

A file appears whole by a rename, a link is made by one contender alone, and what one process wrote another sees.
"""

import json
import sys
import time
import uuid
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from grid.errors import UserError
from grid.store.attempts import HEARTBEAT_SECONDS
from grid.store.files import create_json, write_text

MEETING_SECONDS = 60.0
"""For all onlookers to come."""

ROUNDS = 100
SIZE = 1 << 16
"""Links contended for, renames watched, and bytes of the file that is renamed."""

PAUSE_SECONDS = 0.005
"""After a link that was made."""


@dataclass
class Seen:
    """What one onlooker saw.

    Args:
        won: rounds in which it made the link.
        faults: what it saw that must not be, a sentence each.
        seconds: that the last of the others' files took to be seen.
    """

    won: list[int] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)
    seconds: float = 0.0


def look(folder: str, count: int) -> dict[str, object]:
    """Take part as one of so many onlookers; what was seen, as plain values.

    What cannot be done at all is a fault too: who asked should hear it from every node.
    """
    seen, place, name = Seen(), Path(folder), uuid.uuid4().hex
    try:
        _meet(place, "came", name, count, MEETING_SECONDS)
        seen.won = [number for number in range(ROUNDS) if _contend(place / f"link-{number}", name)]
        seen.seconds = _meet(place, "linked", name, count, MEETING_SECONDS)
        writes = create_json(place / "writer", name)
        seen.faults += _write(place / "whole") if writes else _read(place / "whole")
    except OSError as error:
        seen.faults.append(f"{error.strerror}: {error.filename}")
    except UserError as error:
        seen.faults.append(str(error))
    return asdict(seen)


def faults(answers: Sequence[dict[str, object]]) -> dict[str, str]:
    """Each claim about the folder with what speaks against it; empty where nothing does."""
    seen = [Seen(**answer) for answer in answers]  # type: ignore[arg-type]
    said = "; ".join(dict.fromkeys(fault for one in seen for fault in one.faults))
    winners = [sum(number in one.won for one in seen) for number in range(ROUNDS)]
    wrong = sum(count != 1 for count in winners)
    slowest = max(one.seconds for one in seen)
    late = f"a file was seen after {slowest:.0f} s" if slowest > HEARTBEAT_SECONDS else ""
    return {
        "files are written, flushed and renamed as a whole": said,
        "of several processes one alone makes a link": f"{wrong} of {ROUNDS} times not" if wrong and not said else "",
        "a file is seen by the others at once": late,
    }


def _meet(place: Path, what: str, name: str, count: int, patience: float) -> float:
    """Leave a file and wait until everyone's is seen; how long that took after one's own."""
    write_text(place / f"{what}-{name}", name)
    began = time.monotonic()
    _until(lambda: len(list(place.glob(f"{what}-*"))) >= count, patience, f"not all {count} files {what}-* were seen")
    return time.monotonic() - began


def _contend(path: Path, name: str) -> bool:
    """Try to make a link when the others do: who made one lets them catch up."""
    try:
        made = create_json(path, name)
    except OSError as error:
        raise UserError(f"no hard link can be made: {error.strerror}") from error
    if made:
        time.sleep(PAUSE_SECONDS)
    return made


def _write(path: Path) -> list[str]:
    """Replace a file again and again; the last time it says that it is over."""
    for number in range(ROUNDS):
        write_text(path, "ab"[number % 2] * SIZE)
    write_text(path, "z" * SIZE)
    return []


def _read(path: Path) -> list[str]:
    """Read it meanwhile: always one of its contents, as a whole."""
    _until(path.exists, MEETING_SECONDS, f"{path} was not seen")
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


def _until(met: Callable[[], bool], patience: float, fault: str) -> None:
    until = time.monotonic() + patience
    while not met():
        if time.monotonic() > until:
            raise UserError(f"{fault} within {patience:g} s")
        time.sleep(0.01)


if __name__ == "__main__":
    sys.stdout.write(json.dumps(look(sys.argv[1], int(sys.argv[2]))))
