"""User errors: a single message without a traceback, with the wrong value, the known values and the next step."""

import errno
import hashlib
import json
import os
import re
import stat
import sys
import tomllib
from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from difflib import get_close_matches
from itertools import chain
from pathlib import Path
from typing import Any

from goalgrid.grid.messages import Note, Step, Wording

LISTED = 500
"""Maximum length (characters) of the list of known names in a message; a longer list shows only the nearest names."""


POINTER = b"version https://git-lfs.github.com/spec/"
"""First bytes of a git-lfs pointer, which a clone without git-lfs contains instead of a large file."""

SMALL, LARGE = 2**26, 2**32
"""Maximum size (bytes) of a file that is read as a whole: SMALL for settings, notes and lists of a runs folder, LARGE
for records and lists of data.

The limits protect against sparse files, which take no space on the disk but can exceed the memory.
"""

NESTED = 64
"""Maximum nesting depth of a JSON or TOML file, because parsers and readers of the values are recursive."""


class UserError(Exception):
    """A mistake that a user can correct. The command line prints only its message.

    Args:
        text: the message, with `{step}` as the placeholder of the next step.
        step: the next step; `str` of the error shows it as a Python call.
    """

    def __init__(self, text: str = "", step: Step | None = None) -> None:
        super().__init__(text)
        self.text, self.step = text, step

    def worded(self, wording: Wording) -> str:
        """Return the message with the next step filled in."""
        return Note(self.text, self.step).worded(wording)

    def __str__(self) -> str:
        return self.worded(str)

    def _render_traceback_(self) -> list[str]:
        """Show only the message in a notebook."""
        return [f"goalgrid.UserError: {self}"]


class Incomplete(UserError):
    """The task is incomplete although the command is correct; running it again later may complete it."""


class HostFault(UserError):
    """This host cannot train, but another host may be able to."""


def unknown(what: str, name: object, known: Collection[str], *, where: str = "", hint: str = "") -> str:
    """Return the message that `name` is not a known `what`, with the nearest name, the known names and the next step.

    >>> print(unknown("pair weight", "sigg", ["con", "lin", "sig"], where="in objectives[2]"))
    unknown pair weight 'sigg' in objectives[2]. Did you mean 'sig'? Known: con, lin, sig.
    """
    close = nearest(str(name), known)
    listed, more = list(known) or ["none"], ""
    if len(", ".join(known)) > LISTED:
        listed = nearest(str(name), known, count=8, cutoff=0.0)
        more = f" and {len(known) - len(listed)} more"
    parts = [
        f"unknown {what} {name!r}{' ' + where if where else ''}.",
        f"Did you mean {close[0]!r}?" if close else "",
        f"Known: {', '.join(listed)}{more}.",
        hint,
    ]
    return " ".join(part for part in parts if part)


def check_known(what: str, name: str, known: Collection[str], *, where: str = "", hint: str = "") -> None:
    """Raise a UserError if `name` is not a known `what`; takes the arguments of `unknown`."""
    if name not in known:
        raise UserError(unknown(what, name, known, where=where, hint=hint))


def nearest(name: str, known: Iterable[str], *, count: int = 1, cutoff: float = 0.6) -> list[str]:
    """Return at most `count` known names with a similarity (0 to 1) above `cutoff`, the most similar first.

    The comparison ignores case. A known name that is longer than `name` is also compared by its prefix of equal length.
    Names whose part after the last dot shares the first word with `name`, or is its abbreviation, come first.

    >>> nearest("goal-table2", ["goal-table6", "goal-table2-coco"]), nearest("goal-tabel2", ["goal-table2-coco"])
    (['goal-table2-coco'], ['goal-table2-coco'])
    >>> settings = ["train.mean_loss", "train.batch_size", "train.lr"]
    >>> [nearest(name, settings)[0] for name in ("batch", "lr", "train.learning_rate", "Train.BS")]
    ['train.batch_size', 'train.lr', 'train.lr', 'train.batch_size']
    """
    standing_for: dict[str, list[str]] = {}
    ordered = sorted(known, key=len)
    for other in ordered:
        for part in {other.casefold(), other[: len(name)].casefold()}:
            standing_for.setdefault(part, []).append(other)
    alike = get_close_matches(name.casefold(), standing_for, n=2 * count, cutoff=cutoff)
    meant = [other for other in ordered if _abbreviates(name, other)]
    return list(dict.fromkeys([*meant, *(other for part in alike for other in standing_for[part])]))[:count]


def _abbreviates(name: str, other: str) -> bool:
    """Whether, after the last dot, one of two names is the first word or the initials of the other."""
    (one, words), (two, other_words) = (
        (last, re.split("[_-]", last)) for last in (text.rpartition(".")[2].casefold() for text in (name, other))
    )
    initials = ["".join(word[:1] for word in of) for of in (words, other_words)]
    return (
        one in (two, other_words[0])
        or (len(words) > 1 and initials[0] == two)
        or (len(other_words) > 1 and initials[1] == one)
    )


def counted(number: int, noun: str) -> str:
    """Return a number with its noun, in the singular or plural.

    >>> counted(1, "id"), counted(1200, "id")
    ('1 id', '1,200 ids')
    """
    return f"{number:,} {noun}{'s' * (number != 1)}"


def user_path(path: str | Path) -> Path:
    """Return a path given by a user, with `~` and `~NAME` replaced by home folders.

    Raises:
        UserError: the path is not valid UTF-8, as TOML, JSON and MLflow require, or is a URL such as `s3://bucket`.
    """
    if re.match("[A-Za-z][A-Za-z0-9+.-]+:/", str(path)):  # a Path has one slash left of two
        raise UserError(
            f"{str(path)!r} is an address, not a folder of this machine. Copy it here, or give the folder where it is "
            "mounted."
        )
    if any("\udc80" <= letter <= "\udcff" for letter in str(path)):
        raise UserError(_undecoded(str(path)))
    try:
        return Path(path).expanduser()
    except RuntimeError:
        raise UserError(f"{str(path)!r}: this machine knows no home folder of {Path(path).parts[0]!r}.") from None


def kept_path(path: str, folder: Path) -> str:
    """Return a path made absolute relative to `folder`; unchanged if it begins with a variable, `$SLURM_TMPDIR/x`."""
    return path if path.startswith("$") else str((folder / user_path(path)).absolute())


def machine_path(path: str) -> Path:
    """Expand the variables of a path from `kept_path` on this machine; unset variables are left as they are."""
    return user_path(os.path.expandvars(path) if path.startswith("$") else path)


def _undecoded(path: str) -> str:
    """The reason why a path was not decoded: it is not UTF-8, or the locale makes Python read only ASCII."""
    try:
        text = path.encode(errors="surrogateescape").decode()
    except UnicodeDecodeError:
        return f"the path {path!r} contains bytes that are not UTF-8. Rename it, or choose another path."
    return (
        f"the path {text!r} is UTF-8, but this locale makes Python decode file names as {sys.getfilesystemencoding()}. "
        "Set LC_ALL=C.UTF-8, or PYTHONUTF8=1."
    )


def check_regular(path: Path) -> int:
    """Return the size of a file in bytes; raise an OSError if the path is not (a link to) a regular file.

    Reading a named pipe may block forever, and a device like /dev/zero never ends.
    """
    status = path.stat()
    if stat.S_ISDIR(status.st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    if not stat.S_ISREG(status.st_mode):
        raise OSError(errno.EINVAL, "it is not a regular file", str(path))
    return status.st_size


def check_fetched(path: Path) -> None:
    """Raise an OSError if a file is a git-lfs pointer, or is not a regular file."""
    check_regular(path)
    with path.open("rb") as file:
        _check_no_pointer(file.read(len(POINTER)))


def regular_bytes(path: Path, most: int | None = SMALL) -> bytes:
    """Return the content of a regular file of at most `most` bytes (None: any size).

    Raises:
        OSError: the file is larger, is not a regular file, or is a git-lfs pointer.
    """
    size = check_regular(path)
    if most is not None and size > most:
        raise OSError(errno.EFBIG, f"it has {size:,} bytes; the limit is {most:,}", str(path))
    content = path.read_bytes()
    _check_no_pointer(content)
    return content


def _check_no_pointer(content: bytes) -> None:
    if content.startswith(POINTER):
        raise OSError("it is a git-lfs pointer: git lfs pull fetches the file itself")


def parsed_json(text: str | bytes) -> Any:
    """Parse a JSON text; raise a ValueError if it is invalid or nested too deeply."""
    return _parsed(json.loads, text)


def parsed_toml(text: str) -> dict[str, Any]:
    """Parse a TOML text; raise a ValueError if it is invalid or nested too deeply."""
    return dict(_parsed(tomllib.loads, text))


def _parsed(parse: Callable[[Any], Any], text: str | bytes) -> Any:
    """Call the parser; raises a ValueError if it fails, or if the value has more than `NESTED` levels."""
    with suppress(RecursionError):
        value = parse(text)
        level = [value]
        for _ in range(NESTED + 1):
            level = [outer for outer in level if isinstance(outer, dict | list)]
            if not level:
                return value
            level = list(chain.from_iterable(outer.values() if isinstance(outer, dict) else outer for outer in level))
    raise ValueError(f"it is nested more than {NESTED} levels deep")


def sha256_of(path: Path) -> str:
    """Return the SHA-256 of a file as 64 hexadecimal digits; raise an OSError if it is unreadable."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def text_of(path: Path, what: str, hint: str) -> str:
    """Read a text file named by the user; errors call it `what`, and add `hint` if it is missing."""
    try:
        text = regular_bytes(path).decode("utf-8-sig")
        return text.replace("\r\n", "\n").replace("\r", "\n")
    except FileNotFoundError:
        close = nearest(path.stem, [other.stem for other in path.parent.glob(f"*{path.suffix}")])
        sibling = f" Did you mean '{close[0]}{path.suffix}' in the same folder?" if close else ""
        raise UserError(f"{what}: no file {path}.{sibling} {hint}") from None
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{what}: cannot read {path}: {error}") from error


def toml_of(path: Path, what: str, hint: str) -> dict[str, Any]:
    """Read a TOML file named by the user; takes the arguments of `text_of`."""
    try:
        return parsed_toml(text_of(path, what, hint))
    except ValueError as error:
        raise UserError(f"{what}: {path} is not valid TOML: {error}") from error


def said_by(error: BaseException) -> str:
    """Return the text of an error in one line, or the name of its class if the text is empty."""
    text = ""
    with suppress(Exception):
        text = " ".join(str(error).split())
    return text or type(error).__name__


def in_short(error: BaseException, most: int = 300) -> str:
    """Return the message of an error, truncated to `most` characters."""
    words = said_by(error).rstrip(".") or type(error).__name__
    return words if len(words) <= most else f"{words[:most]}..."


def several(heading: str, problems: Iterable[str]) -> UserError:
    """Build one error that reports all problems of a file at once."""
    lines = list(problems)
    if len(lines) == 1:
        return UserError(f"{heading}: {lines[0]}")
    return UserError(f"{heading}: {len(lines)} problems\n" + "\n".join(f"  - {line}" for line in lines))
