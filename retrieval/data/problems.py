"""What is wrong with a copy of a data set: collected, so that loading and `data check` share one reader of each format.

Readers append what they find and go on as well as they can; whoever loads then refuses, `data check` shows them all.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from retrieval.data.pairs import DataError

SHOWN = 5
"""Problems that an error spells out."""


@dataclass(frozen=True)
class Problem:
    """One fault: where it stands, what is wrong, and what mends it."""

    place: str
    what: str
    fix: str

    def __str__(self) -> str:
        return f"{self.place}: {self.what}. {self.fix}"


def counted(number: int, noun: str) -> str:
    """A number with its noun.

    >>> counted(1, "id"), counted(1200, "id")
    ('1 id', '1,200 ids')
    """
    return f"{number:,} {noun}{'s' * (number != 1)}"


def refuse(problems: Sequence[Problem], heading: str) -> None:
    """Stop where there are problems.

    Raises:
        DataError: the problem, or the first of them with their number.
    """
    if not problems:
        return
    if len(problems) == 1:
        raise DataError(str(problems[0]))
    lines = [f"  - {problem}" for problem in problems[:SHOWN]]
    if len(problems) > SHOWN:
        lines.append(f"  - and {len(problems) - SHOWN} more; `goalgrid data check` shows all")
    raise DataError(f"{heading}: {len(problems)} problems\n" + "\n".join(lines))


def lines_of(path: Path, what: str, problems: list[Problem]) -> list[str]:
    """The lines of a text file, without its last line end; what is no UTF-8 is replaced and reported."""
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        problems.append(Problem(str(path), "is missing", f"It holds {what}; take it from the package of its peers."))
        return []
    except OSError as error:
        problems.append(Problem(str(path), f"cannot be read: {error.strerror or error}", "Look at its permissions."))
        return []
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        place, what = f"{path}, line {line}", f"is not UTF-8: byte {content[error.start]:#04x}"
        problems.append(Problem(place, what, f"Convert it: iconv -f latin1 -t utf-8 {path.name} > fixed.txt"))
        text = content.decode("utf-8", errors="replace")
    text = text.replace("\r\n", "\n").replace("\r", "\n").rstrip("\n")
    return text.split("\n") if text else []
